/** The APIs that are spoken. */

import type { Dialect } from './dialect.ts';
import { anthropicDialect } from './dialects/anthropic.ts';
import { openAiChat } from './dialects/openai-chat.ts';
import { openAiCompletions } from './dialects/openai-completions.ts';
import { responsesDialect } from './dialects/responses.ts';

export const DIALECTS: readonly Dialect[] = [openAiChat, openAiCompletions, responsesDialect, anthropicDialect];
