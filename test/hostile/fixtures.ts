/** Model directories to be damaged: copies of the reference packs, and raw access to their shards that trusts no reader. */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, vi } from 'vitest';
import { ColiError } from '../../src/common/errors.ts';

const ORACLES = join(import.meta.dirname, '../oracles');

export const FIRST_SHARD = 'model-00001-of-00003.safetensors';
export const LAST_SHARD = 'model-00003-of-00003.safetensors';
export const INDEX = 'model.safetensors.index.json';

/** A directory that lives as long as the running test. */
export function temporaryDirectory(): string {
  const directory = fs.mkdtempSync(join(tmpdir(), 'coli-test-'));
  onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A writable copy of the model part of a reference pack. */
export function copyPack(pack = 'olmoe', directory = temporaryDirectory()): string {
  fs.mkdirSync(directory, { recursive: true });
  for (const name of fs.readdirSync(join(ORACLES, pack))) {
    if (!name.startsWith('reference.')) fs.copyFileSync(join(ORACLES, pack, name), join(directory, name));
  }
  return directory;
}

export interface RawEntry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

export function readShard(path: string): { header: Record<string, RawEntry>; data: Buffer } {
  const bytes = fs.readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  return { header: JSON.parse(bytes.toString('utf8', 8, 8 + length)), data: bytes.subarray(8 + length) };
}

/** Writes a shard with exactly this header, padded to 8 bytes with `padding`. */
export function writeShard(path: string, header: string, data: Uint8Array, padding = ' '): void {
  const bytes = Buffer.byteLength(header);
  const json = Buffer.from(header + padding.repeat((8 - (bytes % 8)) % 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  fs.writeFileSync(path, Buffer.concat([length, json, data]));
}

/** Changes the parsed header of a shard in place; the tensor data stays as it is. */
export function editHeader(path: string, edit: (header: Record<string, RawEntry>) => void): void {
  const { header, data } = readShard(path);
  edit(header);
  writeShard(path, JSON.stringify(header), data);
}

/** A file of this many bytes that takes no space on disk. */
export function sparseFile(path: string, bytes: number): void {
  fs.writeFileSync(path, '');
  fs.truncateSync(path, bytes);
}

/**
 * Runs something that must be refused: one of our errors with a code and a next step, and no read larger than the header
 * limit on the way (so memory does not follow what a file claims).
 */
export function refusalOf(run: () => unknown, largestRead = 1_000_000): ColiError {
  const reads = vi.spyOn(fs, 'readSync');
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ColiError);
    const { code, hint, message } = error as ColiError;
    expect(code).toMatch(/^[A-Z][A-Z0-9_]+$/);
    expect(hint).toBeTruthy();
    expect(message).not.toContain('\n');
    for (const [, , , length] of reads.mock.calls as unknown[][]) expect(length).toBeLessThanOrEqual(largestRead);
    return error as ColiError;
  } finally {
    reads.mockRestore();
  }
  throw new Error('the damaged model was accepted');
}
