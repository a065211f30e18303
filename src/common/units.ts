/** Sizes and speeds as people read them: GB = 10^9 bytes, GiB = 2^30; flags use K/M/G = powers of 1024. */

import { UsageError } from './errors.ts';

export const KIB = 1024;
export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

/** 1234567890 -> "1.23 GB" (decimal units). */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let value = bytes;
  let text = String(bytes);
  // The rounded number decides: 999,600 bytes are "1.00 MB", not "1000 kB".
  while (Number(text) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
    text = threeDigits(value);
  }
  return `${text} ${units[unit]}`;
}

/** 1.234 -> "1.23", 9.996 -> "10.0", 123.4 -> "123" */
function threeDigits(value: number): string {
  for (const digits of [2, 1]) {
    const text = value.toFixed(digits);
    if (text.length <= 4) return text;
  }
  return value.toFixed(0);
}

/** The smallest size in whole MiB that holds `bytes`, as a flag takes it: 238,500,000 -> "228M". */
export function sizeFlag(bytes: number): string {
  return `${Math.ceil(bytes / MIB)}M`;
}

/** A size as people type it, without rounding: 2147483648 -> "2G", 1000 -> "1000". */
export function exactSize(bytes: number): string {
  for (const unit of 'TGMK') {
    const size = parseSize(`1${unit}`);
    if (bytes >= size && bytes % size === 0) return `${bytes / size}${unit}`;
  }
  return String(bytes);
}

/** "400M" -> 419430400. Accepts K, M, G, T with an optional "iB" or "B"; powers of 1024. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$/i.exec(text.trim());
  if (!match) throw new UsageError('BAD_SIZE', `"${text}" is not a size`, { hint: 'write a size like 400M or 24G' });
  const bytes = Math.floor(Number(match[1]) * 1024 ** ['', 'K', 'M', 'G', 'T'].indexOf(match[2].toUpperCase()));
  if (!Number.isSafeInteger(bytes)) {
    throw new UsageError('BAD_SIZE', `"${text}" is too large`, { hint: 'write a size like 400M or 24G' });
  }
  return bytes;
}

/** Seconds -> "4.2 s", "3 min 20 s". */
export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return 'unknown';
  if (Number(seconds.toFixed(1)) < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

export function alignDown(value: number, alignment: number): number {
  return Math.floor(value / alignment) * alignment;
}
