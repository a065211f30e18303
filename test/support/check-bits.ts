/**
 * All scenes of the kernel tests without a test runner, for machines and emulators where that cannot run: every implementation
 * against the reference, bit by bit. Arguments: kernels to leave out, such as matmulFloat.
 */

import type { Op } from '../../src/kernels/scene.ts';
import { IMPLEMENTATIONS, MISSING, memory, reference, SCENES } from '../../src/kernels/test-support.ts';

console.log(`${process.platform}-${process.arch}, Node ${process.version}`);
for (const { name, reason } of MISSING) console.log(`not here: ${name} (${reason})`);
const leftOut = process.argv.slice(2);
let wrong = 0;
for (const op of Object.keys(SCENES).filter(name => !leftOut.includes(name)) as Op[]) {
  const started = performance.now();
  let count = 0;
  for (const scene of SCENES[op]()) {
    count++;
    const wanted = scene.outcome(reference, memory);
    for (const { name, kernels } of IMPLEMENTATIONS) {
      const difference = scene.difference(scene.outcome(kernels, memory), wanted);
      if (difference === null) continue;
      wrong++;
      console.log(`${name}: ${difference}`);
    }
  }
  console.log(`${op}: ${count} scenes, ${((performance.now() - started) / 1000).toFixed(1)} s`);
}
console.log(`${wrong} differences; compared: ${IMPLEMENTATIONS.map(one => one.name).join(', ')}`);
process.exitCode = wrong === 0 && IMPLEMENTATIONS.length > 0 ? 0 : 1;
