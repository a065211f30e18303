import { describe, expect, test } from 'vitest';
import { InternalError, RequestError } from '../common/errors.ts';
import type { Activations, EngineInfo, FinishReason } from '../engine/api.ts';
import type { Answer } from './answer.ts';
import { readyLine } from './chat-loop.ts';
import { errorReport } from './output.ts';
import { answerFooter, answerJson, answerStatistics, banner, count, infoJson, infoText, seedFigure } from './report.ts';

function answer(finishReason: FinishReason = 'stop', expertRequests = 8, activations: Activations = 'int8'): Answer {
  return {
    start: {
      type: 'start',
      cachedTokens: 0,
      promptIds: [1, 2],
      sampling: {
        temperature: 1,
        topP: 1,
        topK: 0,
        minP: 0,
        repetitionPenalty: 1,
        presencePenalty: 0,
        frequencyPenalty: 0,
        seed: 42,
        maxTokens: 10,
      },
    },
    end: {
      type: 'end',
      text: 'hi',
      tokenIds: [5, 6, 4],
      finishReason,
      stopReason: 4,
      stats: {
        prefill_tokens: 2,
        cached_tokens: 0,
        prefill_s: 0.5,
        decode_tokens: 2,
        decode_s: 0.04,
        decode_batch: 1,
        ttft_s: 0.6,
        expert_requests: expertRequests,
        expert_hits: 6,
        expert_prefetched: 3,
        expert_wasted: 1,
        expert_prefetch_used: 2,
        expert_prefetch_late: 1,
        expert_warm_hits: 2,
        expert_guessable: 8,
        expert_guessed: 6,
        prefetch_useful_bytes: 2000,
        prefetch_wasted_bytes: 1000,
        prefetch_changes: 0,
        prefetch_on: true,
        bytes_read: 12_000_000,
        read_service_s: 0.2,
        read_wait_s: 0.1,
        resident_bytes: 1000,
        slot_bytes: 2000,
        max_rss_bytes: 3000,
        kernels: 'wasm-relaxed',
        activations,
        threads: 2,
      },
    },
  };
}

const INFO: EngineInfo = {
  directory: '/models/nano',
  family: 'olmoe',
  layers: 6,
  hiddenSize: 256,
  experts: 32,
  totalExperts: 192,
  topK: 4,
  vocabSize: 4096,
  maxContext: 1024,
  context: 512,
  parameters: 32_037_120,
  bytesOnDisk: 21_000_000,
  encodings: { q4g64: 16_000_000, bf16: 5_000_000 },
  kv: 'f32',
  slots: 1,
  fingerprint: '00',
  kernels: 'wasm-relaxed',
  kernelNote: null,
  activations: 'int8',
  threads: 2,
  readers: 4,
  directIo: true,
  policy: 'lfru',
  prefetch: 'auto',
  usage: { mode: 'on', tokens: 700 },
  plan: {
    budget: 400_000_000,
    budgetSource: '--ram',
    total: 300_000_000,
    smallestBudget: 200_000_000,
    resident: 5_000_000,
    kv: 6_000_000,
    scratch: 7_000_000,
    overhead: 180_000_000,
    slots: 8_000_000,
    slotBytes: 81_920,
    expertSlots: 96,
    chunkTokens: 512,
  },
  notes: [],
};

test('run --json is exactly the documented object', () => {
  const json = answerJson('/models/nano', answer(), ['told']);
  expect(Object.keys(json)).toEqual([
    'model',
    'prompt_ids',
    'token_ids',
    'text',
    'finish_reason',
    'seed',
    'stop_reason',
    'notes',
    'stats',
  ]);
  expect(json).toMatchObject({
    prompt_ids: [1, 2],
    token_ids: [5, 6, 4],
    text: 'hi',
    finish_reason: 'stop',
    seed: 42,
    stop_reason: 4,
    notes: ['told'],
  });
  expect(Object.keys(json.stats)).toEqual(
    (
      'prefill_tokens prefill_s decode_tokens decode_s ttft_s expert_requests expert_hits expert_prefetched expert_prefetch_used expert_prefetch_late expert_wasted expert_warm_hits expert_guessable expert_guessed prefetch_useful_bytes prefetch_wasted_bytes prefetch_changes prefetch_on bytes_read read_service_s ' +
      'read_wait_s resident_bytes slot_bytes max_rss_bytes kernels activations threads'
    ).split(' '),
  );
  expect(Object.values(json.stats)).not.toContain(undefined);
});

test('the footer', () => {
  const context = 512;
  const usual = '3 tokens, 25.0 tok/s, first after 600 ms, expert hits 75 %, 12.0 MB read';
  expect(answerFooter(answer(), context)).toBe(usual);
  expect(answerFooter(answer('length'), context)).toBe(`${usual}, ended at the token limit`);
  expect(answerFooter(answer('cancelled', 0), context)).toMatch(/expert hits none asked for, .*, stopped$/);
});

test('the footer tells no speed where no token came after the first', () => {
  const one = answer();
  Object.assign(one.end.stats, { decode_tokens: 1 });
  expect(answerFooter(one, 512)).toMatch(/^3 tokens, first after/);
});

test('the footer tells a full context from the token limit', () => {
  // two tokens of prompt, three of the answer
  expect(answerFooter(answer('length'), 6)).toContain('ended at the token limit');
  expect(answerFooter(answer('length'), 5)).toMatch(/, the context of 5 tokens is full$/);
  expect(answerFooter(answer('stop'), 5)).not.toContain('full');
});

test('activations that are not the usual ones are part of the footer, and always of :stats and of the JSON', () => {
  expect(answerFooter(answer('stop', 8, 'exact'), 512)).toMatch(/, exact activations$/);
  expect(answerStatistics(answer('stop', 8, 'exact'))).toMatch(
    /^compute +wasm-relaxed, exact activations, 2 threads$/m,
  );
  expect(answerStatistics(answer())).toMatch(/^compute +wasm-relaxed, int8 activations, 2 threads$/m);
  expect(answerJson('m', answer('stop', 8, 'exact')).stats).toMatchObject({ activations: 'exact' });
  expect(readyLine(1, '9 MB', 'exact')).toContain(', exact activations;');
  expect(readyLine(1, '9 MB', 'int8')).not.toContain('activations');
});

test('the statistics name memory, disk and the seed', () => {
  const text = answerStatistics(answer());
  expect(text).toContain('12.0 MB read in 200 ms, waited 100 ms');
  expect(text).toContain('seed 42');
  expect(text).toMatch(/^read ahead +3 experts, 1 unused \(1.00 kB\), guesses name 75 % of what is needed$/m);
  expect(text).toContain('3.00 kB peak');
});

test('a seed is told only where it does something', () => {
  expect(seedFigure({ temperature: 0.2, seed: 42 })).toBe(', seed 42');
  const greedy = answer();
  greedy.start.sampling.temperature = 0;
  expect(answerStatistics(greedy)).not.toContain('seed');
  expect(answerJson('m', greedy).seed).toBe(42);
});

describe('info', () => {
  test('as JSON has shapes, encodings, machine and plan in bytes', () => {
    const json = infoJson('0.1.0', INFO);
    expect(json).toMatchObject({
      version: '0.1.0',
      model: '/models/nano',
      family: 'olmoe',
      shapes: { layers: 6, experts: 32, experts_per_token: 4 },
      encodings: { q4g64: 16_000_000 },
      placement: { policy: 'lfru', prefetch: 'auto', io: 'direct', usage: { mode: 'on', tokens: 700 } },
      plan: { budget_bytes: 400_000_000, expert_slots: 96 },
    });
    expect(json.machine.memory_bytes).toBeGreaterThan(json.machine.memory_available_bytes);
    expect(JSON.parse(JSON.stringify(json))).toEqual(json);
  });

  test('as text has one line per subject', () => {
    const text = infoText('0.1.0', INFO, 'auto', false);
    expect(text).toMatch(/^placement +policy lfru, prefetch auto, direct reads, history of 700 tokens$/m);
    expect(text).toContain('6 layers, hidden 256, 32 experts per layer, 4 per token, vocabulary 4096');
    expect(text).toContain('room for 96 of 192 experts at 81.9 kB each');
    expect(text).toMatch(/the smallest possible is --ram 191M$/m);
    expect(infoText('0.1.0', INFO, 'auto', true)).toMatch(
      /--ram 191M \([\d.]+ MB of it only for a first start from source\)$/m,
    );
    expect(text).toContain('21.0 MB: q4g64 16.0 MB, bf16 5.00 MB');
    expect(text).not.toContain('other');
    expect(infoText('0.1.0', { ...INFO, bytesOnDisk: 24_000_000 })).toContain('bf16 5.00 MB, other 3.00 MB (headers');
  });

  test('says why these kernels run, although that is no note', () => {
    const kernelNote = 'using wasm-relaxed: native cannot be used (no C compiler)';
    const info = { ...INFO, kernelNote };
    expect(infoText('0.1.0', info)).toMatch(/^kernels +using wasm-relaxed: native cannot be used \(no C compiler\)$/m);
    expect(infoText('0.1.0', info)).not.toMatch(/^note/m);
    // A warning is both, and told once.
    expect(infoText('0.1.0', { ...info, notes: ['other', kernelNote] }).match(/^note .*/gm)).toEqual([
      expect.stringMatching(/^note +other$/),
    ]);
    expect(infoJson('0.1.0', info)).toMatchObject({
      compute: { kernels: 'wasm-relaxed', kernel_note: kernelNote },
      notes: [],
    });
    expect(infoText('0.1.0', INFO)).toMatch(/^kernels +wasm-relaxed, the fastest that this machine can run$/m);
    expect(infoText('0.1.0', INFO, 'wasm')).toContain('the fastest wasm kernels that');
    expect(infoText('0.1.0', INFO, 'wasm-relaxed')).toMatch(/^kernels +wasm-relaxed, as asked for$/m);
    expect(infoJson('0.1.0', INFO).compute.kernel_note).toBeNull();
  });
});

test('the banner tells version, model, size on disk and where things are', () => {
  const [first, second, third] = banner('0.1.0', INFO);
  expect(first).toBe('colibri 0.1.0: nano (olmoe, 32.0 million parameters), 21.0 MB on disk');
  expect(second).toContain('96 of 192 experts');
  expect(third).toBe('ceiling: 400 MB (--ram)');
  const roomy = { ...INFO, plan: { ...INFO.plan, expertSlots: 192 } };
  expect(banner('0.1.0', roomy)[1]).toContain('all 192 experts');
});

test('counts in words', () => {
  expect([999, 32_037_120, 6_900_000_000].map(count)).toEqual(['999', '32.0 million', '6.9 billion']);
});

test('an error report always has code, message and hint', () => {
  expect(errorReport(new RequestError('X', 'm', { hint: 'h' }))).toEqual({
    error: { code: 'X', message: 'm', hint: 'h' },
  });
  expect(errorReport(new RequestError('X', 'm'))).toEqual({ error: { code: 'X', message: 'm', hint: null } });
  const bug = expect.stringContaining('COLI_DEBUG');
  expect(errorReport(new TypeError('bug')).error).toMatchObject({ code: 'INTERNAL', hint: bug });
  expect(errorReport(new InternalError('LANE_DIED', 'm')).error).toMatchObject({ code: 'LANE_DIED', hint: bug });
});
