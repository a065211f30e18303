/** The server that a chat is attached to: waiting until it is ready, and what it says about itself. */

import { TokenizerError } from '../common/errors.ts';
import type { Clock } from './clock.ts';
import { field, numberField, stringField } from './json-fields.ts';
import { byteAmount } from './progress.ts';
import type { ServerClient } from './server-client.ts';
import { notColibri, type Refusal, refusal } from './server-refusal.ts';
import type { TalkEvent } from './talker.ts';

export interface AttachedServer {
  readonly model: string;
  readonly family: string;
  readonly parameters: number;
  /** Tokens of prompt and answer together. */
  readonly context: number;
  readonly version: string;
  readonly kernels: string;
  readonly activations: string;
  readonly kv: string;
  /** Servers with equal ones give equal bytes for equal requests. */
  readonly fingerprint: string;
  /** What requests get that ask for nothing. */
  readonly temperature: number;
  readonly topP: number;
}

type ProgressEvent = Extract<TalkEvent, { type: 'progress' }>;

/**
 * Waits until the model is loaded, with events that say how far it is; returns what the server says about itself. Throws when
 * nobody is there, when it is no colibri server, does not take the key, or cannot hold a conversation.
 */
export async function* whenReady(
  client: ServerClient,
  signal: AbortSignal,
  clock: Clock,
): AsyncGenerator<ProgressEvent, AttachedServer> {
  const estimate = new Estimate(clock);
  for (;;) {
    const told = await describeServer(client, signal);
    if (!('again' in told)) return told;
    const { again, error, retryMs } = told;
    if (again === 'never') throw error;
    const health = again === 'loading' ? await client.get('/health', signal) : null;
    yield loading(field(health?.json, 'progress'), estimate);
    await clock.sleep(retryMs, signal);
  }
}

/** What the server says about itself, or why it does not. Throws NOT_COLIBRI, NO_CHAT_TEMPLATE and what `get` throws. */
export async function describeServer(client: ServerClient, signal: AbortSignal): Promise<AttachedServer | Refusal> {
  const { base, hasKey } = client;
  const models = await client.get('/v1/models', signal);
  if (models.status !== 200) return refusal(models, base, hasKey);
  const model = field(field(models.json, 'data'), '0');
  if (stringField(model, 'owned_by') !== 'colibri') throw notColibri(base, 'its models are not');
  const props = await client.get('/props', signal);
  return props.status === 200 ? describe(model, props.json, base) : refusal(props, base, hasKey);
}

function loading(progress: unknown, estimate: Estimate): ProgressEvent {
  const [done, total] = [numberField(progress, 'done_bytes'), numberField(progress, 'total_bytes')];
  // before the first bytes, and for whom the server gives no numbers
  if (!done || !total) {
    return { type: 'progress', label: 'waiting for', done: 0, total: 0, amount: () => 'the server', etaMs: null };
  }
  const phase = stringField(progress, 'phase') ?? 'load';
  const etaMs = estimate.left(phase, done, total);
  return { type: 'progress', label: `the server loads (${phase}):`, done, total, amount: byteAmount, etaMs };
}

/** From the speed since the first look: loading had begun before. */
class Estimate {
  readonly #clock: Clock;
  #first: { phase: string; done: number; ms: number } | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds, or null until something has moved. */
  left(phase: string, done: number, total: number): number | null {
    const ms = this.#clock.now();
    if (this.#first?.phase !== phase || done < this.#first.done) this.#first = { phase, done, ms };
    const moved = done - this.#first.done;
    return moved > 0 ? ((ms - this.#first.ms) / moved) * (total - done) : null;
  }
}

function describe(model: unknown, props: unknown, base: string): AttachedServer {
  const id = stringField(model, 'id');
  if (id === null) throw notColibri(base, 'its model has no name');
  if (field(model, 'chat') === false) {
    throw new TokenizerError('NO_CHAT_TEMPLATE', `${id} has no chat template, so it cannot hold a conversation`, {
      hint: 'use /v1/completions of the server instead',
    });
  }
  const number = (value: unknown, name: string) => {
    const found = numberField(value, name);
    if (found === null) throw notColibri(base, `it does not tell its ${name}`);
    return found;
  };
  const text = (value: unknown, name: string) => stringField(value, name) ?? 'unknown';
  const defaults = field(field(props, 'default_generation_settings'), 'params');
  return {
    model: id,
    family: text(model, 'family'),
    parameters: number(model, 'parameters'),
    context: number(model, 'context_length'),
    version: text(props, 'build_info').replace(/^colibri /, ''),
    kernels: text(props, 'kernels'),
    activations: text(props, 'activations'),
    kv: text(props, 'kv'),
    fingerprint: text(props, 'fingerprint'),
    temperature: number(defaults, 'temperature'),
    topP: number(defaults, 'top_p'),
  };
}
