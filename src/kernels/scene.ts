/** One call of one kernel with all its inputs, run by two implementations over the same memory and compared bit by bit. */

import type { Kernels } from './kernels.ts';

export type Op = Exclude<keyof Kernels, 'name'>;

/** Bytes that nothing may write: what lies between the inputs and outputs of a scene. */
const CANARY = 0xa5;
/** First byte handed out; pointer 0 means "none". */
const START = 1024;

/** How a scene is named in messages. */
export const label = (facts: object): string =>
  Object.entries(facts)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

interface Part {
  readonly at: number;
  readonly bytes: Uint8Array;
  /** Float words may differ in the payload of a NaN; what is left in scratch is nobody's business. */
  readonly kind: 'float' | 'other' | 'scratch';
}

/** Calls the kernel for the part [from, to) of the work; returns what the kernel returns. */
export type Run = (kernels: Kernels, from: number, to: number) => unknown;

export class Scene {
  readonly op: Op;
  readonly label: string;
  /** Work units of the whole call (rows, panels, items or elements). */
  units = 0;
  run: Run = () => {};
  /** Bytes of memory used, from 0. */
  size = START;
  readonly #parts: Part[] = [];

  constructor(op: Op, label: string) {
    this.op = op;
    this.label = label;
  }

  /** Places float32 values, 16-byte aligned; returns their offset. */
  floats(values: ArrayLike<number>): number {
    return this.#place(new Uint8Array(Float32Array.from(values).buffer), 'float', 0);
  }

  ints(values: ArrayLike<number>): number {
    return this.#place(new Uint8Array(Int32Array.from(values).buffer), 'other', 0);
  }

  /** Places bytes at an offset that is `misalign` past a multiple of 16. */
  bytes(values: Uint8Array, misalign = 0): number {
    return this.#place(values, 'other', misalign);
  }

  /** Room for `count` floats that the call writes. */
  reserveFloats(count: number): number {
    return this.#place(new Uint8Array(count * 4).fill(CANARY), 'float', 0);
  }

  /** Room for `count` floats that the call may use as it likes. */
  scratch(count: number): number {
    return this.#place(new Uint8Array(count * 4).fill(CANARY), 'scratch', 0);
  }

  #place(bytes: Uint8Array, kind: Part['kind'], misalign: number): number {
    const at = this.size + misalign;
    this.#parts.push({ at, bytes, kind });
    this.size = Math.ceil((at + bytes.length) / 16) * 16 + 16;
    return at;
  }

  /** Resets memory to the inputs of this scene. */
  arrange(memory: WebAssembly.Memory): void {
    const all = new Uint8Array(memory.buffer);
    all.fill(CANARY, 0, this.size);
    for (const part of this.#parts) all.set(part.bytes, part.at);
  }

  /** Memory after a run. `pieces` splits the work; default is one call for all of it. */
  outcome(kernels: Kernels, memory: WebAssembly.Memory, pieces: readonly number[] = []): Outcome {
    this.arrange(memory);
    const edges = [0, ...pieces, this.units];
    let result: unknown;
    for (let i = 1; i < edges.length; i++) result = this.run(kernels, edges[i - 1], edges[i]);
    return { bytes: new Uint8Array(memory.buffer).slice(0, this.size), result };
  }

  /** The first difference in words, or null when two outcomes agree in every bit (the payload of a NaN excepted). */
  difference(got: Outcome, wanted: Outcome): string | null {
    const where = `${this.op} ${this.label}`;
    if (got.result !== wanted.result) return `${where}: returned ${got.result}, not ${wanted.result}`;
    const a = new Int32Array(got.bytes.buffer);
    const b = new Int32Array(wanted.bytes.buffer);
    for (let i = 0; i < a.length; i++) {
      if (a[i] === b[i]) continue;
      const part = this.#parts.find(p => p.at <= i * 4 + 3 && i * 4 < p.at + p.bytes.length);
      if (!part) return `${where}: byte ${i * 4} outside every buffer was written`;
      if (part.kind === 'scratch') continue;
      const x = new Float32Array(got.bytes.buffer)[i];
      const y = new Float32Array(wanted.bytes.buffer)[i];
      if (part.kind === 'float' && Number.isNaN(x) && Number.isNaN(y)) continue;
      const index = i - (part.at >> 2);
      return part.kind === 'float'
        ? `${where}: float ${index} is ${x}, not ${y}`
        : `${where}: word ${index} is 0x${hex(a[i])}, not 0x${hex(b[i])}`;
    }
    return null;
  }
}

export interface Outcome {
  readonly bytes: Uint8Array;
  readonly result: unknown;
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}

/** Runs a scene with both implementations (which must be bound to `memory`); null when they agree. */
export function compare(
  scene: Scene,
  candidate: Kernels,
  reference: Kernels,
  memory: WebAssembly.Memory,
  pieces: readonly number[] = [],
): string | null {
  const got = scene.outcome(candidate, memory, pieces);
  return scene.difference(got, scene.outcome(reference, memory));
}
