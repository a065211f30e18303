/** Checks of what turns texts into ids: the tokenizer, and the chat template with conversations of the usual shapes. */

import { ColiError, errorToWire, RequestError } from '../common/errors.ts';
import { TextService } from '../tokenizer/text-service.ts';
import { fail, failed, pass, warn } from './findings.ts';
import type { Check, Context, Finding } from './types.ts';

/** Composed letters, several scripts, an emoji of several characters, white space: byte-level tokenizers keep all of it. */
const SAMPLE = 'Grüße, 你好, мир, ½ café 👩‍💻\n\tif (x != 0) { y }';

const ASCII = 'Hello';

async function tokenizer({ found }: Context): Promise<Finding> {
  const { controlStrings = [], chat } = found.family ?? {};
  const text = await TextService.open(found.path!, { controlStrings, stopTokens: chat?.stopTokens });
  found.text = text;
  const { vocabSize, addedTokens } = text.info;
  const plain = { controlTokens: false, surround: false };
  // what cannot take this can take nothing
  await text.encode(ASCII, plain);
  const back = await text.encode(SAMPLE, plain).then(
    ids => text.decode(ids),
    error => errorToWire(error).message,
  );
  const modelSize = found.files?.shape.vocabSize;
  const details = { vocabulary: vocabSize, added_tokens: addedTokens.length, model_vocabulary: modelSize ?? null };
  if (back !== SAMPLE) {
    return warn('a text is not the same after it was turned into tokens and back', FETCH_TOKENIZER, {
      ...details,
      text: SAMPLE,
      back,
    });
  }
  if (modelSize !== undefined && vocabSize > modelSize) {
    const what = `it has ids up to ${vocabSize - 1}, the model only up to ${modelSize - 1}`;
    return warn(what, FETCH_TOKENIZER, details);
  }
  return pass(`${vocabSize} tokens; texts come back unchanged`, details);
}

const FETCH_TOKENIZER = 'fetch tokenizer.json and tokenizer_config.json again, from where the weights come from';
const REPAIR = 'fetch the model again, or repair the template (chat_template.jinja takes precedence)';

const USER = 'What is the weather in Rome?';
const TOOL = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const user = { role: 'user', content: USER };
const call = { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: { city: 'Rome' } } };

/** The first two must render: nothing can be asked otherwise. */
const CONVERSATIONS = {
  question: { messages: [user], tools: null },
  turns: {
    messages: [user, { role: 'assistant', content: 'Sunny.' }, { role: 'user', content: 'Sure?' }],
    tools: null,
  },
  system: { messages: [{ role: 'system', content: 'Be brief.' }, user], tools: null },
  tools: { messages: [user], tools: [TOOL] },
  tool_results: {
    messages: [
      user,
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', name: 'get_weather', content: '{"sky": "clear"}' },
    ],
    tools: [TOOL],
  },
} as const;
const REQUIRED: readonly string[] = ['question', 'turns'];

async function template({ found }: Context): Promise<Finding> {
  const text = found.text!;
  if (!text.info.hasTemplate) {
    return warn(
      'none: the model can only continue texts',
      'that is right for a base model (coli run --raw); for a chat model fetch chat_template.jinja or tokenizer_config.json',
    );
  }
  const rendered: Record<string, string> = {};
  const results: Record<string, string> = {};
  const broken: [name: string, error: ColiError][] = [];
  for (const [name, { messages, tools }] of Object.entries(CONVERSATIONS)) {
    try {
      rendered[name] = (await text.render(messages, tools)).text;
      results[name] = 'rendered';
    } catch (error) {
      if (!(error instanceof ColiError)) throw error;
      const refused = error instanceof RequestError && !REQUIRED.includes(name);
      results[name] = `${refused ? 'refused' : 'failed'}: ${error.message}`;
      if (!refused) broken.push([name, error]);
    }
  }
  const plain = rendered.question ?? '';
  if (rendered.tools !== undefined && !rendered.tools.includes('get_weather')) results.tools = 'left out';
  const { text: closed } =
    plain === '' ? { text: '' } : await text.render([user], null, { addGenerationPrompt: false });
  const prompt = plain.startsWith(closed) ? plain.slice(closed.length) : null;
  const details = { conversations: results, generation_prompt: prompt, notes: text.info.notes };
  return judge({ broken, plain, results, details, notes: text.info.notes });
}

function judge({ broken, plain, results, details, notes }: Rendering): Finding {
  const needed = broken.find(([name]) => REQUIRED.includes(name));
  if (needed) {
    const found = failed(needed[1]);
    return { ...found, details: { ...details, ...found.details } };
  }
  if (!plain.includes(USER)) return fail('the template leaves out what the user says', REPAIR, details);
  if (broken.length > 0) {
    const what = broken.map(([name, error]) => `${name.replace('_', ' ')}: ${error.message}`).join('; ');
    return warn(`conversations with ${what}`, REPAIR, details);
  }
  if (notes.length > 0) return warn(notes.join('; '), REPAIR, details);
  const refused = Object.keys(results).filter(name => results[name] !== 'rendered');
  const except = refused.length === 0 ? 'system message and tools included' : `without ${refused.join(', ')}`;
  return pass(`renders conversations, ${except.replace('_', ' ')}`, details);
}

interface Rendering {
  readonly broken: readonly [name: string, error: ColiError][];
  readonly plain: string;
  readonly results: Readonly<Record<string, string>>;
  readonly details: Readonly<Record<string, unknown>>;
  readonly notes: readonly string[];
}

const group = 'model';

export const TEXT_CHECKS: readonly Check[] = [
  { id: 'model.tokenizer', group, needs: ['model.path'], run: tokenizer },
  { id: 'model.template', group, needs: ['model.tokenizer'], run: template },
];
