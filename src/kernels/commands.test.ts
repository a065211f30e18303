/** Every op code means the same to the native runner, which reads the words itself, as to the table in TypeScript. */

import { describe, expect, test } from 'vitest';
import { LAYOUT_ID } from '../quant/layouts.ts';
import { type CommandWords, commandRunner, Op, type OpCode, type RunCommand } from './commands.ts';
import { nativeVariants } from './native/native.ts';
import { RandomValues } from './random-values.ts';
import { createReferenceKernels } from './reference/reference.ts';
import { kernelsFor, runnerFor } from './select.ts';

const memory = new WebAssembly.Memory({ initial: 4, maximum: 4, shared: true });
const bytes = new Uint8Array(memory.buffer);
const shared = new SharedArrayBuffer(4096);
const words: CommandWords = { unsigned: new Uint32Array(shared), floats: new Float32Array(shared) };
/** Where the arguments lie in the words; what is before and after must not matter. */
const AT = 100;

// Places in the arena. X holds 4 rows of 128 floats, which every op may read or write.
const [X, Y, Z, W, CODES, SCALES, SUMS] = [4096, 8192, 12288, 16384, 49152, 53248, 54272];
const [POSITIONS, TABLES, BLOCKS, BLOCK, SCRATCH, IDS, WEIGHTS] = [55296, 55424, 55552, 65536, 196608, 204800, 205824];
const LANE = 3;
const LANE_BYTES = 1024;

function arrange(): void {
  const random = new RandomValues(3);
  bytes.fill(0);
  // also the weights: as codes floats are as good as any bytes, and as scales better
  new Float32Array(memory.buffer, X, (CODES - X) / 4).set(random.floats((CODES - X) / 4, 'ordinary'));
  for (let i = 0; i < CODES - SCALES; i++) bytes[CODES + i] = i % 100;
  new Float32Array(memory.buffer, SCALES, 8).fill(0.5);
  const sumOf = (group: number) => bytes.subarray(CODES + group * 64, CODES + group * 64 + 64).reduce((a, b) => a + b);
  for (let group = 0; group < 8; group++) new Int32Array(memory.buffer, SUMS, 8)[group] = sumOf(group);
  new Int32Array(memory.buffer, POSITIONS, 4).set([2, 0, 3, 1]);
  new Int32Array(memory.buffer, TABLES, 4).fill(BLOCKS);
  new Int32Array(memory.buffer, BLOCKS, 1).set([BLOCK]);
  const keyValues = new Uint32Array(random.floats(2 * 64 * 32, 'ordinary').buffer);
  new Uint16Array(memory.buffer, BLOCK, keyValues.length).set(keyValues.map(word => word >>> 16));
  new Float32Array(memory.buffer, WEIGHTS, 16).set(random.floats(16, 'ordinary'));
}

const q4 = LAYOUT_ID['q4g64-f32'];
/** Arguments, and where floats stand among them; then the range. Each command changes something. */
const COMMANDS: Record<keyof typeof Op, { args: number[]; real?: number[]; from: number; to: number }> = {
  quantise: { args: [X, 128, CODES, SCALES, SUMS], from: 1, to: 3 },
  matmulTiles: { args: [q4, W, 40, 2, CODES, SCALES, SUMS, 0, Y, 48, 0, 3], from: 1, to: 3 },
  matmulFloat: { args: [LAYOUT_ID.f32, Z, 20, X, 32, 0, Y, 16, 0, 3], from: 2, to: 9 },
  matmulExact: { args: [q4, W, 100, X, 128, 0, Y, 48, 0, 3, SCRATCH, LANE_BYTES], from: 5, to: 19 },
  rmsNorm: { args: [X, 130, Z, Y, 129, 120, 0.25], real: [6], from: 1, to: 3 },
  layerNorm: { args: [X, 130, Z, W, 120, 0.25], real: [5], from: 1, to: 3 },
  rope: { args: [X, 4, 32, 6, 24, 1, Z, POSITIONS], from: 1, to: 4 },
  attention: {
    args: [X, Y, 4, 2, 16, 12, 0.125, 3, W, POSITIONS, TABLES, LAYOUT_ID.bf16, 0, 0, 0, SCRATCH, LANE_BYTES],
    real: [6],
    from: 3,
    to: 14,
  },
  indexScores: {
    args: [X, W, 4, 16, 0.125, POSITIONS, TABLES, LAYOUT_ID.bf16, Y, 9, 2],
    real: [4],
    from: 2,
    to: 7,
  },
  selectKeys: { args: [X, 30, 2, POSITIONS, IDS, 5, SCRATCH, LANE_BYTES], from: 1, to: 4 },
  swiglu: { args: [X, Z], from: 5, to: 70 },
  add: { args: [X, Y], from: 5, to: 70 },
  softmax: { args: [X, Y, 40], from: 1, to: 4 },
  sigmoid: { args: [X, Y], from: 5, to: 70 },
  sigmoidGate: { args: [X, Y], from: 5, to: 70 },
  gateRows: { args: [X, Y, 40], from: 1, to: 3 },
  addRows: { args: [X, Y, 40], from: 1, to: 3 },
  swigluClamped: { args: [X, Z, 0.5, 1.75], real: [2, 3], from: 5, to: 70 },
  copyColumns: { args: [X, 40, Y, 50, 30], from: 1, to: 3 },
  topK: { args: [X, W, 40, 3, 5, 2, 1, IDS, WEIGHTS, 1, 2.5], real: [10], from: 1, to: 4 },
  combine: { args: [X, Y, WEIGHTS, 2, Z, 40], from: 1, to: 3 },
  convSilu: { args: [X, W, Z, Y, 40, 4, 5], from: 3, to: 22 },
  deltaGates: { args: [X, X + 64, Z, 1, W, Y, Y + 256, 9], from: 1, to: 3 },
  deltaRule: { args: [X, Z, W, W + 4096, Y, 2, 4, 1, 8, 12, 3, SCRATCH, LANE_BYTES], from: 1, to: 3 },
  clamp: { args: [X, 0.125], real: [1], from: 5, to: 70 },
  toBf16: { args: [X, Y], from: 5, to: 70 },
  swigluQuantise: { args: [X, Z, 128, CODES, SCALES, SUMS], from: 1, to: 3 },
  rmsNormQuantise: { args: [X, 128, Z, Y, 128, 128, 0.25, CODES, SCALES, SUMS], real: [6], from: 1, to: 3 },
};

/** All of memory after a command, but for what lies in scratch. */
function outcome(run: RunCommand, op: keyof typeof Op): Uint8Array {
  arrange();
  const { args, real = [], from, to } = COMMANDS[op];
  words.unsigned.fill(0xffffffff);
  for (const [i, value] of args.entries()) {
    if (real.includes(i)) words.floats[AT + i] = value;
    else words.unsigned[AT + i] = value;
  }
  run(Op[op], AT, LANE, from, to);
  const after = bytes.slice();
  after.fill(0, SCRATCH, IDS);
  return after;
}

const reference = commandRunner(createReferenceKernels(memory), words);

describe.each(nativeVariants())('%s', name => {
  const run = runnerFor(kernelsFor(name, null)(memory), memory, words);

  test.each(Object.keys(COMMANDS) as (keyof typeof Op)[])('%s', op => {
    arrange();
    const before = bytes.slice();
    const wanted = outcome(reference, op);
    expect(Buffer.compare(wanted, before), 'the command changes something').not.toBe(0);
    expect(Buffer.compare(outcome(run, op), wanted)).toBe(0);
  });

  test('what is no command is refused', () => {
    expect(() => run(99, AT, 0, 0, 1)).toThrow('unknown op code 99');
    expect(() => run(Op.add, 1024 - 11, 0, 0, 1)).toThrow('not in the words');
    expect(() => run(Op.add as OpCode, -1, 0, 0, 1)).toThrow(RangeError);
    words.unsigned.fill(0xfffffff0);
    for (const op of Object.values(Op)) expect(() => run(op, AT, LANE, 0, 1), String(op)).toThrow(RangeError);
  });
});
