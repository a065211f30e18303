/** Runs turns on an engine: a place in the queue, the prompt, the answer as events. */

import { chooseFormat } from '../chat/formats.ts';
import { InternalError, RequestError } from '../common/errors.ts';
import type { Engine, GenerateEvent } from '../engine/api.ts';
import type { Admission, ChatTurn, TurnEvent, TurnRequest, TurnRunner } from './turn.ts';
import { TurnOutput } from './turn-output.ts';
import { chatPrompt, planTurn, type TurnPlan } from './turn-plan.ts';
import { type PreparedTurn, prepareTurn } from './turn-prepare.ts';

export interface TurnRunnerParts {
  readonly engine: Engine;
  readonly admission: Admission;
  /** Milliseconds; for tests. */
  readonly now?: () => number;
}

/** Answers that wait for slow readers after the engine has made them, and have given their place to others. */
const MAX_LATE_ANSWERS = 16;

/** Enough to tell models and settings apart. */
const FINGERPRINT_DIGITS = 16;

/** A turn whose signal is aborted ends without an event. */
export function createTurnRunner({ engine, admission, now = () => performance.now() }: TurnRunnerParts): TurnRunner {
  const { chat } = engine.text;
  const format = chooseFormat(engine.text);
  let lateAnswers = 0;
  return {
    fingerprint: `fp_${engine.info.fingerprint.slice(0, FINGERPRINT_DIGITS)}`,
    async *run(request, signal) {
      const plan = planTurn(request, format, chat);
      // checking takes long for some forms; a place stays free for others until then
      const place = admission.enter(request.client, signal, false);
      // it may be refused while the request is still being checked
      place.granted.catch(() => {});
      let turn: PreparedTurn | null = null;
      let isRunning = false;
      let isLate = false;
      const whenMade = () => {
        if (lateAnswers === MAX_LATE_ANSWERS) return;
        lateAnswers++;
        isLate = true;
        place.leave();
      };
      try {
        turn = await prepareTurn(engine, plan, signal);
        place.ready();
        await place.granted;
        if (signal.aborted) return;
        const { promptIds, sampling } = turn.prepared;
        yield { type: 'accepted', promptTokens: promptIds.length, sampling };
        yield* echo(engine, request);
        isRunning = true;
        yield* answer(engine, plan, turn, request, signal, now, whenMade);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        if (!isRunning) turn?.prepared.discard();
        if (isLate) lateAnswers--;
        place.leave();
      }
    },
    async check(request, signal) {
      (await prepareTurn(engine, planTurn(request, format, chat), signal)).prepared.discard();
    },
    async countTokens(turn: ChatTurn) {
      return (await engine.encode(chatPrompt(turn, format, chat))).length;
    },
    async promptText(turn: ChatTurn) {
      return (await engine.render(chatPrompt(turn, format, chat))).text;
    },
  };
}

async function* echo(engine: Engine, { prompt }: TurnRequest): AsyncGenerator<TurnEvent> {
  if (prompt.kind === 'chat' || !prompt.echo) return;
  const text = typeof prompt.prompt === 'string' ? prompt.prompt : await engine.decode(prompt.prompt);
  if (text !== '') yield { type: 'text', text };
}

async function* answer(
  engine: Engine,
  plan: TurnPlan,
  { prepared, start }: PreparedTurn,
  request: TurnRequest,
  signal: AbortSignal,
  now: () => number,
  whenMade: () => void,
): AsyncGenerator<TurnEvent> {
  const { stops, parallelToolCalls } = plan;
  const parser = plan.parser(start);
  const output = new TurnOutput({
    parser,
    stops,
    parallelToolCalls,
    tokenBytes: id => engine.tokenBytes(id),
    topLogprobs: request.logprobs,
  });
  const wantsLogprobs = request.logprobs !== undefined;
  const promptTokens = prepared.promptIds.length;
  const begun = now();
  let cachedTokens = 0;
  let end: Extract<GenerateEvent, { type: 'end' }> | null = null;
  for await (const event of engine.generate(prepared, signal, whenMade)) {
    if (event.type === 'start') cachedTokens = event.cachedTokens;
    else if (event.type === 'prefill') yield progress(event, now() - begun);
    else if (event.type === 'end') end = event;
    else {
      yield* output.push(event);
      // leaving the loop stops the engine
      if (output.isDone) break;
    }
  }
  if (signal.aborted) return;
  if (!output.isDone) {
    checkEnd(end, plan, output);
    yield* output.end(end!.finishReason === 'length', wantsLogprobs);
  }
  const { completionTokens, reasoningTokens } = output;
  const usage = { promptTokens, cachedTokens, completionTokens, reasoningTokens };
  yield { type: 'end', ...output.finish(end), usage };
}

function progress({ done, total }: { done: number; total: number }, elapsedMs: number): TurnEvent {
  const etaMs = done > 0 && elapsedMs > 0 ? Math.round((elapsedMs / done) * (total - done)) : null;
  return { type: 'progress', done, total, etaMs };
}

/** Ends that would look like an answer and are none. */
function checkEnd(end: Extract<GenerateEvent, { type: 'end' }> | null, plan: TurnPlan, output: TurnOutput): void {
  if (end === null || end.finishReason === 'cancelled') {
    throw new InternalError('TURN_INTERRUPTED', 'the engine stopped before the answer was complete', {
      hint: 'send the request again',
    });
  }
  if (end.finishReason === 'stop' && plan.grammar !== null && output.inReasoning) {
    throw new RequestError(
      'FORMAT_NOT_REACHED',
      'the model ended its answer inside its reasoning, before the form could begin',
      {
        hint: 'send the request again, with another seed or with thinking turned off',
      },
    );
  }
}
