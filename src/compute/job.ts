/** Claiming and running the chunks of the current job. */

import type { Kernels } from '../kernels/kernels.ts';
import { ARENA, CHUNKS, COMMANDS, type Control, commandBase, GRAIN, ITEMS, NEXT_CHUNK, OP } from './control.ts';
import { execute } from './execute.ts';

/** Takes chunks of the current job until none is left. `kernels` holds one instance per arena. */
export function workOnJob(control: Control, kernels: readonly Kernels[], lane: number): void {
  const words = control.words;
  const commands = words[COMMANDS];
  let command = 0;
  let firstChunk = 0;
  for (;;) {
    const chunk = Atomics.add(words, NEXT_CHUNK, 1);
    while (command < commands && chunk >= firstChunk + words[commandBase(command) + CHUNKS]) {
      firstChunk += words[commandBase(command) + CHUNKS];
      command++;
    }
    if (command >= commands) return;
    const base = commandBase(command);
    const from = (chunk - firstChunk) * words[base + GRAIN];
    const to = Math.min(from + words[base + GRAIN], words[base + ITEMS]);
    execute(kernels[words[base + ARENA]], control, base, words[base + OP], lane, from, to);
  }
}
