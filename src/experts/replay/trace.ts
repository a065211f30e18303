/** A routing trace in memory: which experts each layer of each forward pass asked for. */

/** What the trace is of. */
export interface TraceHeader {
  /** Hex digest of the model; empty when it is not known. */
  readonly model: string;
  readonly label: string;
  /** Experts per layer, and how many of them a row chooses. */
  readonly experts: number;
  readonly topK: number;
  /** Per layer: bytes that reading one of its experts takes; 0 for layers that do not route. */
  readonly expertBytes: readonly number[];
}

/** Leases in the order in which they began; lease i asked for ids[start[i]..start[i+1]), ascending. */
export interface Trace {
  readonly header: TraceHeader;
  readonly layer: Uint16Array;
  /** Rows that were computed together; 1 while one answer is made. */
  readonly rows: Uint32Array;
  readonly start: Uint32Array;
  readonly ids: Uint16Array;
  /** The file ended within a lease, which is left out: whoever wrote it was killed. */
  readonly isCut: boolean;
}

export function leaseCount(trace: Trace): number {
  return trace.layer.length;
}

/** Forward passes: a layer that is not behind the last one begins another. */
export function passCount(trace: Trace): number {
  let passes = 0;
  for (let i = 0; i < trace.layer.length; i++) if (i === 0 || trace.layer[i] <= trace.layer[i - 1]) passes++;
  return passes;
}

/** Experts of all routing layers. */
export function expertCount({ experts, expertBytes }: TraceHeader): number {
  return experts * expertBytes.filter(bytes => bytes > 0).length;
}

/** Makes a trace in memory; its arrays grow by doubling. */
export class TraceBuilder {
  readonly #header: TraceHeader;
  #layer = new Uint16Array(1024);
  #rows = new Uint32Array(1024);
  #start = new Uint32Array(1024);
  #ids = new Uint16Array(8192);
  #leases = 0;
  #requests = 0;

  constructor(header: TraceHeader) {
    this.#header = header;
  }

  get requests(): number {
    return this.#requests;
  }

  /** `experts` 0..count-1 are distinct and ascending. */
  add(layer: number, rows: number, experts: ArrayLike<number>, count = experts.length): this {
    if (this.#leases + 2 > this.#start.length) {
      this.#layer = grown(this.#layer);
      this.#rows = grown(this.#rows);
      this.#start = grown(this.#start);
    }
    while (this.#requests + count > this.#ids.length) this.#ids = grown(this.#ids);
    this.#layer[this.#leases] = layer;
    this.#rows[this.#leases] = rows;
    for (let i = 0; i < count; i++) this.#ids[this.#requests++] = experts[i];
    this.#start[++this.#leases] = this.#requests;
    return this;
  }

  /** The trace so far; its arrays are the builder's own. */
  build(isCut = false): Trace {
    return {
      header: this.#header,
      layer: this.#layer.subarray(0, this.#leases),
      rows: this.#rows.subarray(0, this.#leases),
      start: this.#start.subarray(0, this.#leases + 1),
      ids: this.#ids.subarray(0, this.#requests),
      isCut,
    };
  }
}

function grown<T extends Uint16Array | Uint32Array>(array: T): T {
  const larger = new (array.constructor as new (length: number) => T)(2 * array.length);
  larger.set(array);
  return larger;
}
