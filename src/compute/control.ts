/**
 * The shared memory through which the engine gives work to the lanes. A job is a list of independent commands; each command
 * is cut into chunks, lanes claim chunks by a shared counter, and everybody meets at the end of the job. Which lane computes
 * a chunk cannot change a result, because chunks are ranges of output rows, panels, heads or elements.
 */

/** Word positions in the control block. */
export const GENERATION = 0;
export const ARRIVED = 1;
export const NEXT_CHUNK = 2;
export const COMMANDS = 3;
export const STOP = 4;
export const FAILED = 5;
export const PARKED = 6;
export const ENGINE_PARKED = 7;
/** Idle lanes wait on GENERATION, the engine on ARRIVED; the two PARKED words count who sleeps there. */
const HEADER_WORDS = 64;

/** op, arena, items, grain, chunks, then the kernel's arguments; twelve words are written at a time. */
export const OP = 0;
export const ARENA = 1;
export const ITEMS = 2;
export const GRAIN = 3;
export const CHUNKS = 4;
export const ARGS = 5;
export const COMMAND_WORDS = 32;

/** Enough for gate and up of 1024 experts in one job. */
export const MAX_COMMANDS = 2048;

/** Polls before a waiting thread parks on the futex; about 50 µs, well above the serial work between two jobs. */
const SPINS = 3000;
const SLOW_MS = 1000;

export interface Control {
  readonly words: Int32Array;
  /** The same words as unsigned (addresses) and as float32 (factors). */
  readonly unsigned: Uint32Array;
  readonly floats: Float32Array;
}

export function createControl(): SharedArrayBuffer {
  return new SharedArrayBuffer((HEADER_WORDS + MAX_COMMANDS * COMMAND_WORDS) * 4);
}

export function viewControl(buffer: SharedArrayBuffer): Control {
  return { words: new Int32Array(buffer), unsigned: new Uint32Array(buffer), floats: new Float32Array(buffer) };
}

export function commandBase(index: number): number {
  return HEADER_WORDS + index * COMMAND_WORDS;
}

/** A default made anew at every call would be garbage. */
const ignore = (): void => {};

/**
 * Waits until words[index] differs from `value`: spins, then parks. Returns the new value. `onSlow` is called about once a
 * second while nothing changes, and may throw.
 */
export function waitWhile(
  words: Int32Array,
  index: number,
  value: number,
  parkedIndex: number,
  onSlow: () => void = ignore,
): number {
  for (let i = 0; i < SPINS; i++) {
    const now = Atomics.load(words, index);
    if (now !== value) return now;
    pause();
  }
  Atomics.add(words, parkedIndex, 1);
  try {
    while (Atomics.load(words, index) === value) {
      if (Atomics.wait(words, index, value, SLOW_MS) === 'timed-out') onSlow();
    }
  } finally {
    Atomics.sub(words, parkedIndex, 1);
  }
  return Atomics.load(words, index);
}

/** A hint to the CPU that this is a spin loop. */
const pause: () => void = (Atomics as unknown as { pause?: () => void }).pause?.bind(Atomics) ?? (() => {});
