/**
 * Whole models over every implementation that runs here: the bits of every logit of every position, and the sampled tokens,
 * are those of the reference kernels, however the work is divided.
 */

import { beforeAll, describe, expect, test } from 'vitest';
import type { Activations, EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { generate } from '../../src/engine/generate.ts';
import { score } from '../../src/engine/score.ts';
import { readReference } from '../../src/eval/reference.ts';
import type { KernelName } from '../../src/kernels/kernels.ts';
import { IMPLEMENTATIONS, MISSING } from '../../src/kernels/test-support.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { NANO } from '../support/nano.ts';
import { PACKS, packDirectory, withRuntime } from '../support/packs.ts';

type Options = Omit<EngineOptions, 'model'>;

interface Subject {
  readonly name: string;
  readonly model: string;
  readonly ids: readonly number[];
  readonly activations: readonly Activations[];
}

/** Packs of bfloat16 alone. */
const UNQUANTISED = ['olmoe', 'glm-moe-dsa', 'qwen36'];

const SUBJECTS: readonly Subject[] = [
  ...[...PACKS, 'qwen36-int4g64'].map(name => {
    const model = packDirectory(name);
    // Without quantised matrices the two are one computation.
    const activations: Activations[] = UNQUANTISED.includes(name) ? ['int8'] : ['int8', 'exact'];
    return { name, model, ids: readReference(model, 3).inputIds, activations };
  }),
  // Few tokens: the reference kernels need two seconds for them.
  {
    name: 'nano',
    model: NANO,
    ids: Array.from({ length: 21 }, (_, i) => (i * 389 + 7) % 4096),
    activations: ['int8'],
  },
];

/** One lane and several; one row at a time, ragged chunks, and all rows at once. Few slots make experts move. */
const WAYS: readonly Options[] = [
  { threads: 1, chunk: 1, expertSlots: 8 },
  { threads: 3, chunk: 13 },
  { threads: 2, chunk: 128, expertSlots: 12 },
];

interface Outcome {
  /** [positions, vocabulary] */
  readonly logits: Uint32Array;
  readonly tokens: string;
}

function run({ model, ids }: Subject, options: Options): Promise<Outcome> {
  return withRuntime({ model, context: 256, ...options }, (runtime, session) => {
    expect(runtime.info.kernels).toBe(options.kernels);
    const { logits } = score(runtime, session, { ids, logits: true });
    const words = new Uint32Array(logits!.buffer, logits!.byteOffset, logits!.length);
    session.truncate(0);
    const { tokenBytes, vocabSize } = Tokenizer.load(model);
    const request = { temperature: 0.9, topP: 0.95, seed: 7, maxTokens: 8, ignoreEos: true };
    const events: GenerateEvent[] = [];
    generate(runtime, session, { tokenBytes, vocabSize, endOfTurnIds: [] }, ids.slice(0, 13), request, event =>
      events.push(event),
    );
    const end = events.at(-1)!;
    if (end.type !== 'end') throw new Error('no end event');
    return { logits: words, tokens: end.tokenIds.join(' ') };
  });
}

/** Null when all words are equal; else where the first difference is. */
function difference(got: Uint32Array, wanted: Uint32Array, rows: number): string | null {
  if (got.length !== wanted.length) return `${got.length} logits instead of ${wanted.length}`;
  const at = got.findIndex((word, i) => word !== wanted[i]);
  if (at < 0) return null;
  const width = wanted.length / rows;
  const hex = (words: Uint32Array) => `0x${words[at].toString(16).padStart(8, '0')}`;
  return `position ${Math.floor(at / width)}, token ${at % width}: ${hex(got)} instead of ${hex(wanted)}`;
}

for (const { name, reason } of MISSING) test.skip(`${name}: not here (${reason})`, () => {});

const NAMES: readonly KernelName[] = IMPLEMENTATIONS.map(one => one.name);

const kindOf = (name: KernelName): string => name.split('-')[0];

/**
 * Every way for the first of a kind. The others of it are called by the same code and differ in instructions, whose bits the tests of
 * the kernels compare: one way, of a long batch and of single rows on two lanes, shows that they are the ones that compute.
 */
function waysOf(name: KernelName): readonly Options[] {
  return NAMES.find(other => kindOf(other) === kindOf(name)) === name ? WAYS : [WAYS[2]];
}

describe.each(SUBJECTS)('$name', subject => {
  describe.each(subject.activations)('%s activations', activations => {
    let wanted: Outcome;
    beforeAll(async () => {
      wanted = await run(subject, { kernels: 'reference', activations, threads: 2 });
    });

    test('the reference computes something', () => {
      expect(wanted.logits.length % subject.ids.length).toBe(0);
      expect(new Set(wanted.logits).size).toBeGreaterThan(wanted.logits.length / 4);
    });

    test.each(NAMES)('%s', async kernels => {
      for (const way of waysOf(kernels)) {
        const got = await run(subject, { kernels, activations, ...way });
        expect(difference(got.logits, wanted.logits, subject.ids.length), JSON.stringify(way)).toBeNull();
        expect(got.tokens, JSON.stringify(way)).toBe(wanted.tokens);
      }
    });
  });
});

test('one bit of one logit is a difference', () => {
  const wanted = new Uint32Array(6).fill(0x3f800000);
  const got = wanted.slice();
  expect(difference(got, wanted, 2)).toBeNull();
  got[4] ^= 1;
  expect(difference(got, wanted, 2)).toBe('position 1, token 1: 0x3f800001 instead of 0x3f800000');
  expect(difference(wanted.subarray(1), wanted, 2)).toContain('5 logits');
});
