/** Compiles grammars and keeps every live constraint's mask up to date with the ids that the engine has chosen. */

import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { errorToWire } from '../common/errors.ts';
import { GrammarLibrary } from './adapter.ts';
import type { GrammarSpec } from './api.ts';
import { CompiledCache } from './compiled-cache.ts';
import { LiveConstraint } from './live-constraint.ts';
import {
  BUSY_COUNT,
  BUSY_ID,
  BUSY_PHASE,
  COMPILING,
  type GrammarCommand,
  type GrammarReply,
  type GrammarWorkerData,
  IDLE,
  MASKING,
} from './protocol.ts';

const { vocabulary, heapBytes, doorbell, busy, faults } = workerData as GrammarWorkerData;
const port = parentPort!;
const live = new Map<number, LiveConstraint>();

// Messages are fetched between masks, not handled as they come; the port only keeps the thread alive.
port.ref();
const cache = new CompiledCache(await GrammarLibrary.load(vocabulary, heapBytes), heapBytes);

for (;;) {
  const rung = Atomics.load(doorbell, 0);
  // One at a time: whoever waits for a mask does not wait for all grammars that are to be compiled.
  const next = receiveMessageOnPort(port);
  if (next) await run(next.message);
  for (const [id, constraint] of live) {
    if (!constraint.isBehind) continue;
    begin(MASKING, id);
    await constraint.catchUp();
  }
  if (next) continue;
  begin(IDLE, 0);
  const rest = Atomics.waitAsync(doorbell, 0, rung);
  if (rest.async) await rest.value;
}

async function run(command: GrammarCommand): Promise<void> {
  if (command.kind === 'release') {
    live.get(command.id)?.dispose();
    live.delete(command.id);
    return;
  }
  const { id, spec, channel } = command;
  begin(COMPILING, id);
  let reply: GrammarReply = { kind: 'opened', id };
  try {
    const matcher = await cache.matcher(spec);
    live.set(id, new LiveConstraint(matcher, channel, faultOf(spec)));
  } catch (error) {
    // What the library throws is thrown on: its instance is lost.
    const wire = errorToWire(error);
    if (wire.class !== 'RequestError') throw error;
    reply = { kind: 'refused', id, error: wire };
  }
  port.postMessage(reply);
}

/** Tells the service. The id comes last: with it, the other words are those of this piece of work. */
function begin(phase: number, id: number): void {
  Atomics.store(busy, BUSY_PHASE, phase);
  Atomics.add(busy, BUSY_COUNT, 1);
  Atomics.store(busy, BUSY_ID, id);
}

function faultOf(spec: GrammarSpec): 'hang' | 'crash' | undefined {
  if (!faults || spec.kind !== 'literal') return undefined;
  return spec.text === faults.hang ? 'hang' : spec.text === faults.crash ? 'crash' : undefined;
}
