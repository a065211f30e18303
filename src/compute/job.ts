/** Claiming and running the chunks of the current job. */

import type { RunCommand } from '../kernels/commands.ts';
import { ARENA, ARGS, CHUNKS, COMMANDS, type Control, commandBase, GRAIN, ITEMS, NEXT_CHUNK, OP } from './control.ts';

/** Takes chunks of the current job until none is left. `runners` holds one per arena. */
export function workOnJob(control: Control, runners: readonly RunCommand[], lane: number): void {
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
    runners[words[base + ARENA]](words[base + OP], base + ARGS, lane, from, to);
  }
}
