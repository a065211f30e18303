/** One grammar worker and its watchdog. */

import { Worker } from 'node:worker_threads';
import { endWorker } from '../common/waiting.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { Vocabulary } from './adapter.ts';
import { grammarHeapBytes, grammarScriptMib } from './memory.ts';
import { BUSY_WORDS, type Faults, type GrammarCommand, type GrammarReply, type GrammarWorkerData } from './protocol.ts';
import { type Limits, Watchdog, type Work } from './watchdog.ts';

export interface ThreadEvents {
  reply(reply: GrammarReply): void;
  /** It takes too long over something, or has died of it. Neither comes after `end`. */
  expired(work: Work): void;
  died(work: Work): void;
}

export class GrammarThread {
  readonly #worker: Worker;
  readonly #watchdog: Watchdog;
  readonly #doorbell: Int32Array;
  #hasServed = false;

  constructor(
    { tokenBytes, vocabSize, stopIds, faults }: Vocabulary & { readonly faults?: Faults },
    doorbell: Int32Array,
    limits: Limits,
    events: ThreadEvents,
  ) {
    // Words of its own: whatever an old worker still writes concerns nobody.
    const busy = new Int32Array(new SharedArrayBuffer(BUSY_WORDS * 4));
    const data: GrammarWorkerData = {
      vocabulary: { tokenBytes, vocabSize, stopIds },
      heapBytes: grammarHeapBytes(vocabSize),
      doorbell,
      busy,
      faults,
    };
    this.#doorbell = doorbell;
    this.#worker = new Worker(workerUrl('grammar-worker', import.meta.url), {
      workerData: data,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: grammarScriptMib(vocabSize), maxYoungGenerationSizeMb: 8 },
      // The library writes warnings about grammars there.
      stdout: true,
      stderr: true,
    });
    this.#watchdog = new Watchdog(busy, limits, events.expired);
    this.#worker.stdout.resume();
    this.#worker.stderr.resume();
    const died = () => {
      this.#watchdog.stop();
      events.died(this.#watchdog.work);
    };
    this.#worker.on('message', (reply: GrammarReply) => {
      this.#hasServed = true;
      events.reply(reply);
    });
    this.#worker.once('error', died);
    this.#worker.once('messageerror', died);
    this.#worker.once('exit', died);
  }

  /** It has compiled something. */
  get hasServed(): boolean {
    return this.#hasServed;
  }

  send(command: GrammarCommand): void {
    this.#worker.postMessage(command);
    Atomics.add(this.#doorbell, 0, 1);
    Atomics.notify(this.#doorbell, 0);
  }

  async end(): Promise<void> {
    this.#watchdog.stop();
    await endWorker(this.#worker);
  }
}
