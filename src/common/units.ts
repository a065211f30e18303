/** Sizes and speeds as people read them: GB = 10^9 bytes, GiB = 2^30; flags use K/M/G = powers of 1024. */

import { UsageError } from './errors.ts';

export const KIB = 1024;
export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

/** 1234567890 -> "1.23 GB" (decimal units). */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${units[unit]}`;
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
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

export function alignDown(value: number, alignment: number): number {
  return Math.floor(value / alignment) * alignment;
}
