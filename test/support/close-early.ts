/** Child process of the engine's tests: opens a model, leaves in the middle, and must then end by itself. */

import { openEngine } from '../../src/engine/engine.ts';

const [model, how] = process.argv.slice(2);
const options = { model, ram: 1_000_000_000, threads: 2, context: 128, expertSlots: 2 };

if (how === 'bad-open') {
  const refused = await openEngine({ ...options, kernels: 'wasm', ram: 1000 }).catch(error => error.code);
  console.log(refused);
} else {
  const engine = await openEngine(options, () => {}, { faults: { nth: 30, kind: 'slow' } });
  const endings: string[] = [];
  const generate = async () => {
    for await (const event of engine.generate({ prompt: { text: 'Hi' }, maxTokens: 100, ignoreEos: true })) {
      if (event.type === 'token' && how === 'break') break;
      if (event.type === 'token') void engine.close();
      if (event.type === 'end') endings.push(event.finishReason);
    }
  };
  await Promise.all(how === 'break' ? [generate()] : [generate(), generate()]);
  await engine.close();
  console.log(endings.join(' '));
}
