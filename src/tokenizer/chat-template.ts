/** The chat template of a model: found, parsed once, rendered many times. */

import { join } from 'node:path';
import { TokenizerError } from '../common/errors.ts';
import { isThere, readSmallFile } from '../formats/files.ts';
import { decodeUtf8, isJsonObject, jsonType } from '../formats/json.ts';
import {
  analyseNodes,
  MAX_TEMPLATE_STEPS,
  runTemplate,
  type TemplateHooks,
  type TemplateNodes,
} from './template-run.ts';
import { parseTemplate, TOO_DEEP, unsupportedConstructs } from './template-syntax.ts';

/** Published templates reach about 20 kB. */
export const MAX_TEMPLATE_BYTES = 2 ** 20;

export interface RenderVariables {
  readonly messages: readonly unknown[];
  /** null when the request has none, as transformers passes it. */
  readonly tools: readonly unknown[] | null;
  readonly add_generation_prompt: boolean;
  readonly [name: string]: unknown;
}

interface ParsedTemplate {
  readonly nodes: TemplateNodes | null;
  /** Why it cannot be used, with the line. */
  readonly problem: string | null;
  readonly unsupported: readonly string[];
}

const PLAIN: TemplateHooks = { plain: text => text, pattern: text => text, json: text => text };

export class ChatTemplate {
  readonly #templates: ReadonlyMap<string, ParsedTemplate>;
  readonly #source: string | null;

  /** null when the model has no template. A template that cannot be used is an error only when it is rendered. */
  static load(directory: string, config: Readonly<Record<string, unknown>>): ChatTemplate | null {
    const sources = new Map<string, unknown>();
    const file = join(directory, 'chat_template.jinja');
    if (isThere(file)) sources.set('default', decodeUtf8(readSmallFile(file, MAX_TEMPLATE_BYTES), file));
    else readConfigTemplates(config.chat_template, sources);
    return sources.size === 0 ? null : new ChatTemplate(sources);
  }

  /** A source that is no string makes a template that cannot be used. */
  constructor(sources: ReadonlyMap<string, unknown>) {
    this.#templates = new Map([...sources].map(([name, source]) => [name, parse(source)]));
    const source = sources.get('default');
    this.#source = typeof source === 'string' ? source : null;
  }

  /** Source of the default template; null when there is none that is a text. */
  get source(): string | null {
    return this.#source;
  }

  get names(): string[] {
    return [...this.#templates.keys()];
  }

  /** Lines for people: a template that is broken, filters and tests that will fail when they are reached. */
  get problems(): string[] {
    return [...this.#templates].flatMap(([name, { problem, unsupported }]) => {
      const which = this.#templates.size > 1 ? `chat template "${name}"` : 'chat template';
      const all = problem === null ? unsupported.map(what => `${what} is not supported`) : [problem];
      return all.map(what => `${which}: ${what}`);
    });
  }

  /** Text and string literals of the template, as far as it can be used. */
  literals(tools: boolean, name?: string): readonly string[] {
    return this.#choose(tools, name).nodes?.literals ?? [];
  }

  /**
   * Renders the named template; without a name `tool_use` when there are tools and the model has one, else `default`.
   * Throws RequestError when the template refuses the conversation, TokenizerError when it is broken or exceeds a limit.
   */
  render(
    variables: RenderVariables,
    now: Date,
    hooks: TemplateHooks = PLAIN,
    name?: string,
    maxSteps = MAX_TEMPLATE_STEPS,
  ): string {
    const { nodes, problem } = this.#choose(variables.tools !== null, name);
    if (!nodes) {
      throw new TokenizerError('CHAT_TEMPLATE_INVALID', `the chat template of this model cannot be used: ${problem}`, {
        hint: 'use the raw prompt form, or repair the template (chat_template.jinja takes precedence)',
      });
    }
    return runTemplate(nodes, variables, hooks, now, maxSteps);
  }

  #choose(tools: boolean, name?: string): ParsedTemplate {
    const wanted = name ?? (tools && this.#templates.has('tool_use') ? 'tool_use' : 'default');
    const template = this.#templates.get(wanted);
    if (template) return template;
    throw new TokenizerError('CHAT_TEMPLATE_MISSING', `this model has no chat template named "${wanted}"`, {
      hint: `it has: ${this.names.join(', ')}`,
    });
  }
}

/** What is not a template is kept too: using it is an error, where a model without a template says something else. */
function readConfigTemplates(value: unknown, sources: Map<string, unknown>): void {
  if (value === undefined || value === null) return;
  const named = (item: unknown) => isJsonObject(item) && typeof item.name === 'string';
  if (!Array.isArray(value) || !value.every(named)) sources.set('default', value);
  else for (const { name, template } of value) sources.set(name, template);
}

function parse(source: unknown): ParsedTemplate {
  if (typeof source !== 'string')
    return unusable(`it must be a string or a list of named strings, not ${jsonType(source)}`);
  if (source.length > MAX_TEMPLATE_BYTES) return unusable(`it is longer than ${MAX_TEMPLATE_BYTES} characters`);
  const result = parseTemplate(source);
  if ('problem' in result) {
    const { message, line } = result.problem;
    return unusable(line === null ? message : `line ${line}: ${message}`);
  }
  try {
    const unsupported = unsupportedConstructs(source, result.program);
    return { nodes: analyseNodes(result.program), problem: null, unsupported };
  } catch (error) {
    // A long chain of operators is a deep tree that was built without recursion.
    if (error instanceof RangeError) return unusable(TOO_DEEP);
    throw error;
  }
}

function unusable(problem: string): ParsedTemplate {
  return { nodes: null, problem, unsupported: [] };
}
