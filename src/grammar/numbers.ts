/** Numbers between bounds, digit by digit. */

import { alt, charClass, EMPTY, type Expr, NEVER, optional, repeat, seq, text } from './expr.ts';
import { DIGIT, DIGIT_1_9, MAX_DIGITS } from './json-text.ts';

/**
 * Significant digits of a number with bounds: any two decimals of this length are different doubles, so what is below a bound as
 * text is below it as a double.
 */
const SIGNIFICANT_DIGITS = 15;

export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

/** Integers without exponent, at most MAX_DIGITS digits long. */
export function integersBetween(low: Bound | null, high: Bound | null): Expr {
  const limit = 10n ** BigInt(MAX_DIGITS) - 1n;
  let min = -limit;
  let max = limit;
  if (low && low.value > -Number(limit)) {
    min = BigInt(Math.ceil(low.value));
    if (low.exclusive && Number.isInteger(low.value)) min++;
  }
  if (high && high.value < Number(limit)) {
    max = BigInt(Math.floor(high.value));
    if (high.exclusive && Number.isInteger(high.value)) max--;
  }
  const negative = min < 0n ? wholeBetween(max < 0n ? -max : 1n, -min) : NEVER;
  return alt(seq(text('-'), negative), wholeBetween(min > 0n ? min : 0n, max));
}

/** Decimals without exponent. */
export function numbersBetween(low: Bound | null, high: Bound | null): Expr {
  const zero: Bound = { value: 0, exclusive: false };
  const below: Bound = { value: 0, exclusive: true };
  const minus = (bound: Bound | null) => bound && { value: -bound.value, exclusive: bound.exclusive };
  const negative =
    low && low.value >= 0 ? NEVER : decimalsBetween(high && high.value < 0 ? minus(high)! : below, minus(low));
  const positive = high && high.value < 0 ? NEVER : decimalsBetween(low && low.value >= 0 ? low : zero, high);
  return alt(seq(text('-'), negative), positive);
}

/** low >= 0 */
function decimalsBetween(low: Bound, high: Bound | null): Expr {
  if (high && (high.value < low.value || (high.value === low.value && (high.exclusive || low.exclusive)))) return NEVER;
  const [lowWhole, lowDigits] = decimal(low.value);
  const most = 10n ** BigInt(Math.max(SIGNIFICANT_DIGITS, `${lowWhole}`.length + 1));
  const [highWhole, highDigits] = high ? decimal(high.value) : [most, ''];
  const longest = Math.max(lowWhole.toString().length, high ? highWhole.toString().length : 1);
  const room = Math.max(0, SIGNIFICANT_DIGITS - longest);
  const fraction = new Fraction(low.exclusive, high?.exclusive ?? false);
  // A long bound may be reached, but what is close to it without being it would be rounded to it.
  const roomFor = (bound: Bound, digits: string) => (bound.exclusive ? room : Math.max(room, digits.length));
  const lower = (upper: string | null) => fraction.after(lowDigits, upper, roomFor(low, lowDigits));
  if (lowWhole === highWhole) return seq(text(`${lowWhole}`), lower(highDigits));
  return alt(
    seq(text(`${lowWhole}`), lower(null)),
    seq(wholeBetween(lowWhole + 1n, highWhole - 1n), fraction.after(null, null, room)),
    high ? seq(text(`${highWhole}`), fraction.after(null, highDigits, roomFor(high, highDigits))) : NEVER,
  );
}

/**
 * Digits behind the point, the point included. A bound is given by the digits that are left of it while all digits so far are its
 * own; null = no longer in reach.
 */
class Fraction {
  readonly #lowExclusive: boolean;
  readonly #highExclusive: boolean;

  constructor(lowExclusive: boolean, highExclusive: boolean) {
    this.#lowExclusive = lowExclusive;
    this.#highExclusive = highExclusive;
  }

  after(low: string | null, high: string | null, room: number): Expr {
    const digits = seq(text('.'), this.#digits(low, high, room));
    return this.#mayStop(low, high) ? optional(digits) : digits;
  }

  #mayStop(low: string | null, high: string | null): boolean {
    const isBound = (digits: string | null) => digits !== null && /^0*$/.test(digits);
    if (low !== null && (!isBound(low) || this.#lowExclusive)) return false;
    return !(isBound(high) && this.#highExclusive);
  }

  /** One digit at least. */
  #digits(low: string | null, high: string | null, room: number): Expr {
    if (room === 0) return NEVER;
    if (low === null && high === null) return repeat(DIGIT, 1, room);
    const first = low === null ? 0 : Number(low[0] ?? 0);
    const last = high === null ? 9 : Number(high[0] ?? 0);
    const options: Expr[] = [];
    const near = (digit: number) => (low !== null && digit === first) || (high !== null && digit === last);
    for (let digit = first; digit <= last; digit++) {
      if (!near(digit)) continue;
      const lowRest = low !== null && digit === first ? low.slice(1) : null;
      const highRest = high !== null && digit === last ? high.slice(1) : null;
      const rest = this.#digits(lowRest, highRest, room - 1);
      options.push(seq(text(`${digit}`), this.#mayStop(lowRest, highRest) ? optional(rest) : rest));
    }
    const [from, to] = [low === null ? first : first + 1, high === null ? last : last - 1];
    if (from <= to) options.push(seq(charClass([[0x30 + from, 0x30 + to]]), repeat(DIGIT, 0, room - 1)));
    return alt(...options);
  }
}

/** Whole numbers from low to high, both not negative, without leading zeros. */
function wholeBetween(low: bigint, high: bigint): Expr {
  if (low > high) return NEVER;
  const from = `${low}`;
  const to = `${high}`;
  if (low === 0n) return alt(text('0'), wholeBetween(1n, high));
  if (from.length === to.length) return digitsBetween(from, to);
  const options = [digitsBetween(from, '9'.repeat(from.length))];
  if (to.length - from.length > 1) {
    options.push(seq(DIGIT_1_9, repeat(DIGIT, from.length, to.length - 2)));
  }
  options.push(digitsBetween(`1${'0'.repeat(to.length - 1)}`, to));
  return alt(...options);
}

/** Strings of digits, as long as both, in between. */
function digitsBetween(from: string, to: string): Expr {
  if (from === '') return EMPTY;
  if (/^0*$/.test(from) && /^9*$/.test(to)) return repeat(DIGIT, from.length, from.length);
  if (from[0] === to[0]) return seq(text(from[0]), digitsBetween(from.slice(1), to.slice(1)));
  const length = from.length - 1;
  let first = Number(from[0]);
  let last = Number(to[0]);
  const options: Expr[] = [];
  if (/[^0]/.test(from.slice(1))) {
    options.push(seq(text(from[0]), digitsBetween(from.slice(1), '9'.repeat(length))));
    first++;
  }
  const cutEnd = /[^9]/.test(to.slice(1));
  if (cutEnd) last--;
  if (first <= last) options.push(seq(charClass([[0x30 + first, 0x30 + last]]), repeat(DIGIT, length, length)));
  if (cutEnd) options.push(seq(text(to[0]), digitsBetween('0'.repeat(length), to.slice(1))));
  return alt(...options);
}

/** A number that is not negative as its whole part and the digits behind the point. */
function decimal(value: number): [bigint, string] {
  const [mantissa, exponent] = value.toExponential().split('e');
  const digits = mantissa.replace('.', '');
  const point = 1 + Number(exponent);
  if (point <= 0) return [0n, '0'.repeat(-point) + digits.replace(/0+$/, '')];
  const padded = digits.padEnd(point, '0');
  return [BigInt(padded.slice(0, point)), padded.slice(point).replace(/0+$/, '')];
}
