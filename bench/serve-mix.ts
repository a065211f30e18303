/** What the clients of the load ask: everyday requests of all four APIs, prompts that are far too long, schemas that mean harm. */

import type { Api, Ask, Leave } from './serve-client.ts';

export type Random = () => number;

/** Numbers in [0, 1), always the same for a seed. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const whole = (random: Random, from: number, to: number) => from + Math.floor(random() * (to - from + 1));
const pick = <T>(random: Random, items: readonly T[]): T => items[whole(random, 0, items.length - 1)];

const WORDS =
  'the cat rain mice river stone small song of and in over under perché colibrì acqua fuoco 日本 東京 🦜 function return value list 12 7 why how what'.split(
    ' ',
  );
const APIS: readonly Api[] = ['chat', 'completions', 'messages', 'responses'];

/** Most words of an everyday prompt; about two tokens each. */
const LONG_PROMPT = 250;
/** Most tokens of an everyday answer. */
const LONG_ANSWER = 64;
/** Share of requests whose client goes away. */
const LEAVERS = 0.3;

export interface MixOptions {
  /** Whether clients leave; default true. */
  readonly leave?: boolean;
}

/** An everyday request. */
export function everydayAsk(random: Random, { leave = true }: MixOptions = {}): Ask {
  const api = pick(random, APIS);
  const stream = random() < 0.6;
  const words = Array.from({ length: whole(random, 1, random() < 0.2 ? LONG_PROMPT : 30) }, () => pick(random, WORDS));
  const options = { temperature: random(), seed: whole(random, 0, 1000), stream };
  const body = bodyOf(api, words.join(' '), whole(random, 1, LONG_ANSWER), options);
  const goes = random() < LEAVERS;
  const going = leaving(random, stream);
  return { kind: `${api}${stream ? ', streamed' : ''}`, api, stream, body, ...(leave && goes && { leave: going }) };
}

/** At once, somewhere in the prompt, or in the answer. */
function leaving(random: Random, stream: boolean): Leave {
  const kind = random();
  if (kind < 0.3) return { afterMs: 0 };
  if (kind < 0.6 || !stream) return { afterMs: whole(random, 1, 200) };
  return { afterPieces: whole(random, 1, 20) };
}

export function bodyOf(api: Api, text: string, maxTokens: number, options: Record<string, unknown>): string {
  const messages = [{ role: 'user', content: text }];
  const usage = options['stream'] === true && (api === 'chat' || api === 'completions');
  const common = { ...options, ...(usage && { stream_options: { include_usage: true } }) };
  switch (api) {
    case 'chat':
    case 'messages':
      return JSON.stringify({ messages, max_tokens: maxTokens, ...common });
    case 'completions':
      return JSON.stringify({ prompt: text, max_tokens: maxTokens, ...common });
    case 'responses':
      return JSON.stringify({ input: text, max_output_tokens: maxTokens, ...common });
  }
}

const MEGABYTE = 1_000_000;

/** Requests of about 1 MB that no context holds. */
export const HUGE_ASKS: readonly Ask[] = [
  huge('chat', bodyOf('chat', 'word '.repeat(MEGABYTE / 5), 8, {}), 400),
  huge('completions', bodyOf('completions', 'Ärger 日本 '.repeat(MEGABYTE / 15), 8, { stream: true }), 400),
  huge('messages', JSON.stringify({ max_tokens: 8, messages: manyMessages(9_000) }), 400),
  huge(
    'completions',
    JSON.stringify({ prompt: Array.from({ length: MEGABYTE / 5 }, (_, i) => 1000 + (i % 3000)) }),
    400,
  ),
  huge('responses', `{"input":${'['.repeat(MEGABYTE / 2)}${']'.repeat(MEGABYTE / 2)}}`, 400),
  huge(
    'chat',
    JSON.stringify({ messages: [{ role: 'user', content: 'x' }], list: new Array(MEGABYTE / 2).fill(1) }),
    400,
  ),
  huge('chat', bodyOf('chat', 'x'.repeat(5 * MEGABYTE), 8, {}), 413),
];

function manyMessages(count: number): object[] {
  const content = 'a message of a long history that has no end. ';
  return Array.from({ length: count }, (_, i) => ({
    role: i % 2 === 0 ? 'user' : 'assistant',
    content: content.repeat(2),
  }));
}

function huge(api: Api, body: string, status: number): Ask {
  return { kind: 'about 1 MB', api, body, stream: false, statuses: [status] };
}

/** Schemas and grammars that grow without bound, refer to themselves, or ask for what cannot be; some may turn out to be possible. */
export const HOSTILE_ASKS: readonly Ask[] = [
  schema({ type: 'array', items: { $ref: '#' } }),
  schema({ $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } }),
  schema(nested(200)),
  schema({ enum: Array.from({ length: 20_000 }, (_, i) => `value ${i}`) }),
  schema({ type: 'string', pattern: '^(a|a)*(a|a)*(a|a)*(a|a)*b$' }),
  schema({ type: 'string', pattern: '^((a{1,500}){1,500}){1,500}$' }),
  schema({ type: 'string', minLength: 1_000_000 }),
  schema({ type: 'array', minItems: 100_000, items: { enum: [1, 2, 3] } }),
  schema({ not: { type: 'string' } }),
  field({ grammar: 'root ::= root' }),
  field({ grammar: 'root ::= "a"{1,1000000}' }),
  field({ grammar: `root ::= ${'('.repeat(5000)}"a"${')'.repeat(5000)}` }),
  field({ grammar: `root ::= ${Array.from({ length: 20_000 }, (_, i) => `"${i}"`).join(' | ')}` }),
  field({ regex: '(a*)*(a*)*(a*)*(a*)*$' }),
  field({ regex: '(x{1,1000}){1,1000}' }),
  field({ regex: '[^\\x00-\\x{10FFFF}]' }),
];

/** The same, and each keeps the compiler busy for seconds. */
export const HEAVY_ASKS: readonly Ask[] = [
  schema({ type: 'object', properties: Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`p${i}`, {}])) }),
  schema({ allOf: Array.from({ length: 500 }, (_, i) => ({ anyOf: [{ minimum: i }, { maximum: -i }] })) }),
];

function schema(value: object): Ask {
  return field({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: value } } });
}

function field(more: object): Ask {
  const body = bodyOf('chat', 'Give me JSON.', 16, { ...more, temperature: 0 });
  return { kind: 'hostile form', api: 'chat', body, stream: false, statuses: [200, 400] };
}

function nested(depth: number): object {
  return depth === 0 ? { type: 'integer' } : { type: 'object', properties: { a: nested(depth - 1) }, required: ['a'] };
}
