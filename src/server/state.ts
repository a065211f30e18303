/** Whether the model is there. The port is open before it is, so every route asks here first. */

import { ColiError, RequestError } from '../common/errors.ts';
import type { Engine, OpenProgress } from '../engine/api.ts';
import type { TurnRunner } from './turn.ts';

export type Phase =
  | { readonly name: 'loading'; readonly progress: OpenProgress }
  | { readonly name: 'ready'; readonly engine: Engine; readonly runner: TurnRunner }
  | { readonly name: 'failed'; readonly error: unknown };

export class ModelState {
  #phase: Phase = { name: 'loading', progress: { phase: 'open', doneBytes: 0, totalBytes: 0 } };

  /** Looks whether the engine still lives. */
  get phase(): Phase {
    if (this.#phase.name === 'ready') {
      try {
        void this.#phase.engine.status;
      } catch (error) {
        this.fail(error);
      }
    }
    return this.#phase;
  }

  progress(progress: OpenProgress): void {
    if (this.#phase.name === 'loading') this.#phase = { name: 'loading', progress };
  }

  ready(engine: Engine, runner: TurnRunner): void {
    this.#phase = { name: 'ready', engine, runner };
  }

  /** The model cannot be loaded, or its engine has died. */
  fail(error: unknown): void {
    this.#phase = { name: 'failed', error };
  }

  /** An error of a request: one that means that no other request can be answered either ends the service. */
  noteFailure(error: unknown): void {
    if (error instanceof ColiError && error.code === 'ENGINE_DIED') this.fail(error);
  }

  get engine(): Engine {
    return this.#require().engine;
  }

  get runner(): TurnRunner {
    return this.#require().runner;
  }

  /** Throws MODEL_LOADING or MODEL_FAILED. */
  #require(): Phase & { name: 'ready' } {
    const { phase } = this;
    if (phase.name === 'ready') return phase;
    if (phase.name === 'failed') throw modelFailed(phase.error);
    throw new RequestError('MODEL_LOADING', 'the model is still loading', {
      hint: 'try again in a moment; GET /health tells how far it is',
    });
  }
}

function modelFailed(cause: unknown): RequestError {
  const reason = cause instanceof ColiError ? cause.message : 'an unexpected error';
  return new RequestError('MODEL_FAILED', `the model cannot be used: ${reason}`, {
    hint: 'the log of the server has the details; start it again',
    cause,
  });
}
