/**
 * Arenas: a few shared WebAssembly memories that hold every weight, activation and key/value. Space is reserved first (plain
 * numbers, so a plan costs nothing), then committed once; arenas never grow. An address is (arena, byte offset).
 */

import { PlanError } from '../common/errors.ts';
import { alignUp, formatBytes } from '../common/units.ts';

export const WASM_PAGE = 65536;
/** 65,535 pages, not 65,536: an end address then never wraps to 0. */
export const MAX_ARENA_BYTES = 65535 * WASM_PAGE;
/** Page 0 belongs to the kernel module's read-only tables, and 0 stays free to mean "none". */
const RESERVED_BYTES = WASM_PAGE;
/** Direct reads need page-aligned places; everything else is happy with it too. */
const PLACE_ALIGNMENT = 4096;

export type Purpose = 'resident' | 'kv' | 'scratch' | 'slots';

export interface Place {
  readonly arena: number;
  readonly offset: number;
}

/** A float32 (or int32) activation [rows, columns] in arena 0, with copies in other arenas when `replicated`. */
export interface Tensor {
  readonly rows: number;
  readonly columns: number;
  /** Byte offset per arena; arena 0 is home. */
  readonly at: number[];
}

/** Typed arrays over a tensor, per arena; made once, because a new one for every token is work for the collector. */
interface Views {
  readonly floats: Float32Array[];
  readonly ints: Int32Array[];
}

export class Arenas {
  readonly capacityBytes: number;
  readonly memories: WebAssembly.Memory[] = [];
  /** All of each arena as 32-bit words: index = address / 4. */
  readonly words: Int32Array[] = [];
  readonly bytesByPurpose: Record<Purpose, number> = { resident: 0, kv: 0, scratch: 0, slots: 0 };
  readonly #used: number[] = [];
  readonly #replicated: { tensor: Tensor; bytes: number }[] = [];
  readonly #initialisers: (() => void)[] = [];
  readonly #views = new WeakMap<Tensor, Views>();

  /** `capacityBytes` is smaller than the maximum only in tests, to force several arenas. */
  constructor(capacityBytes: number = MAX_ARENA_BYTES) {
    this.capacityBytes = Math.floor(capacityBytes / WASM_PAGE) * WASM_PAGE;
    this.#open();
  }

  get count(): number {
    return this.#used.length;
  }

  /** Bytes reserved so far, over all arenas. */
  get totalBytes(): number {
    return this.#used.reduce((sum, bytes) => sum + bytes, 0);
  }

  /** A float32/int32 tensor. Home tensors live in arena 0; `replicated` ones also in every other arena. */
  tensor(rows: number, columns: number, options: { replicated?: boolean } = {}): Tensor {
    const bytes = rows * columns * 4;
    const tensor: Tensor = { rows, columns, at: [this.#take(0, bytes, 'scratch')] };
    if (options.replicated) {
      this.#replicated.push({ tensor, bytes });
      for (let arena = 1; arena < this.count; arena++) tensor.at[arena] = this.#take(arena, bytes, 'scratch');
    }
    return tensor;
  }

  /** Room in any arena, opening another when none has it. */
  place(bytes: number, purpose: Purpose): Place {
    for (let arena = 0; arena < this.count; arena++) {
      if (this.roomIn(arena) >= bytes) return { arena, offset: this.#take(arena, bytes, purpose) };
    }
    const arena = this.#open();
    return { arena, offset: this.#take(arena, bytes, purpose) };
  }

  /** Bytes still free in an arena. */
  roomIn(arena: number): number {
    return this.capacityBytes - this.#used[arena];
  }

  /** What a fresh arena offers after its copies of the replicated tensors. */
  get freshArenaRoom(): number {
    const copies = this.#replicated.reduce((sum, r) => sum + alignUp(r.bytes, PLACE_ALIGNMENT), 0);
    return this.capacityBytes - RESERVED_BYTES - copies;
  }

  /** Runs once the memories exist: fills tables that are computed, not read. */
  onCommit(initialise: () => void): void {
    this.#initialisers.push(initialise);
  }

  /** Creates the memories with exactly the reserved sizes. */
  commit(): void {
    for (const used of this.#used) {
      const pages = Math.ceil(used / WASM_PAGE);
      const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
      this.memories.push(memory);
      this.words.push(new Int32Array(memory.buffer));
    }
    for (const initialise of this.#initialisers) initialise();
  }

  /** The elements of a tensor in one arena; the same view at every call. */
  floats(tensor: Tensor, arena = 0): Float32Array {
    return (this.#viewsOf(tensor).floats[arena] ??= new Float32Array(
      this.memories[arena].buffer,
      tensor.at[arena],
      tensor.rows * tensor.columns,
    ));
  }

  /** As `floats`, for tensors of int32. */
  ints(tensor: Tensor, arena = 0): Int32Array {
    return (this.#viewsOf(tensor).ints[arena] ??= new Int32Array(
      this.memories[arena].buffer,
      tensor.at[arena],
      tensor.rows * tensor.columns,
    ));
  }

  #viewsOf(tensor: Tensor): Views {
    let views = this.#views.get(tensor);
    if (!views) {
      views = { floats: [], ints: [] };
      this.#views.set(tensor, views);
    }
    return views;
  }

  #open(): number {
    this.#used.push(RESERVED_BYTES);
    const arena = this.count - 1;
    for (const { tensor, bytes } of this.#replicated) tensor.at[arena] = this.#take(arena, bytes, 'scratch');
    return arena;
  }

  #take(arena: number, bytes: number, purpose: Purpose): number {
    const rounded = alignUp(bytes, PLACE_ALIGNMENT);
    if (rounded > this.roomIn(arena)) {
      throw new PlanError(
        'ARENA_FULL',
        `${formatBytes(bytes)} of ${purpose} do not fit one memory of ${formatBytes(this.capacityBytes)}`,
        {
          hint: purpose === 'kv' ? 'use a smaller --ctx or fewer --slots' : 'use a smaller --ctx or a smaller chunk',
          details: { bytes, purpose },
        },
      );
    }
    const offset = this.#used[arena];
    this.#used[arena] += rounded;
    this.bytesByPurpose[purpose] += rounded;
    return offset;
  }
}
