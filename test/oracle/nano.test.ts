/**
 * The bundled container against what the reference kernels made of it: results are bits, not approximations, so token ids
 * and losses must be equal to the last digit with every kernel, thread count and number of slots.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Engine } from '../../src/engine/api.ts';
import type { KernelName } from '../../src/kernels/kernels.ts';
import { compileWasm } from '../../src/kernels/wasm/wasm.ts';
import { ask, containerHash, measureText, RECORD_FILE, type Recorded, withNano } from '../support/nano.ts';

const recorded: Recorded = JSON.parse(readFileSync(RECORD_FILE, 'utf8'));

const EXPERTS = 192; // 6 layers of 32
const TOP_K = 4;

/** Why these kernels cannot run on this CPU; null when they can. A missing file is no reason: it throws. */
function notHere(variant: 'baseline' | 'relaxed'): string | null {
  try {
    compileWasm(variant);
    return null;
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    return error.message;
  }
}

async function expectRecordedAnswers(engine: Engine, kernels: KernelName, chats = recorded.chats): Promise<void> {
  expect(engine.info.kernels).toBe(kernels);
  for (const { question, prompt_ids, token_ids, text } of chats) {
    const { promptIds, end } = await ask(engine, question);
    expect(promptIds, question).toEqual(prompt_ids);
    expect(end.tokenIds, question).toEqual(token_ids);
    expect(end).toMatchObject({ text, finishReason: 'stop' });
    expect(end.stats.kernels).toBe(kernels);
  }
}

test('the recorded results belong to the container in the repository', () => {
  expect(containerHash(), 'models/nano changed: run node test/support/record-nano.ts').toBe(recorded.container);
});

describe.each(['baseline', 'relaxed'] as const)('wasm-%s', variant => {
  const kernels = `wasm-${variant}` as const;
  const reason = notHere(variant);
  const name = reason === null ? '' : ` (not on this CPU: ${reason})`;

  test.skipIf(reason !== null)(`the recorded answers and losses${name}`, async () => {
    await withNano({ kernels, threads: 2 }, async engine => {
      await expectRecordedAnswers(engine, kernels);
      for (const { name, predicted_tokens, nll, ppl } of recorded.texts) {
        const report = await measureText(engine, name);
        expect(report.predictedTokens, name).toBe(predicted_tokens);
        expect(report.nll, name).toBe(nll);
        expect(report.ppl.toFixed(6), name).toBe(ppl);
      }
    });
  });
});

test('the reference kernels give the recorded answer', async () => {
  await withNano({ kernels: 'reference', threads: 2 }, async engine => {
    await expectRecordedAnswers(engine, 'reference', recorded.chats.slice(0, 1));
  });
});

test.each([TOP_K, EXPERTS / 4])('%i slots give the recorded answers and read more', async expertSlots => {
  const bytesRead: number[] = [];
  for (const slots of [expertSlots, EXPERTS]) {
    await withNano({ kernels: 'wasm-baseline', expertSlots: slots, threads: 1 }, async engine => {
      expect(engine.info.plan.expertSlots).toBe(slots);
      await expectRecordedAnswers(engine, 'wasm-baseline', recorded.chats.slice(0, 2));
      const { end } = await ask(engine, recorded.chats[1].question);
      bytesRead.push(end.stats.bytes_read);
    });
  }
  expect(bytesRead[0]).toBeGreaterThan(bytesRead[1]);
});

test('it knows the capital of France', async () => {
  await withNano({}, async engine => {
    const { end } = await ask(engine, 'What is the capital of France?');
    expect(end.text).toContain('Paris');
  });
});

test('the comparison can fail: exact activations are another computation', async () => {
  const { name, nll } = recorded.texts[0];
  await withNano({ activations: 'exact' }, async engine => {
    const report = await measureText(engine, name);
    expect(report.nll).not.toBe(nll);
    expect(Math.abs(report.nll - nll)).toBeLessThan(0.02);
  });
});
