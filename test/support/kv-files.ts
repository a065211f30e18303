/** Conversations whose keys and values are a function of their tokens, and a child process that saves them. */

import { type SpawnOptions, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { KV_HEADER_BYTES } from '../../src/engine/kv-block-file.ts';
import { KvFiles, type KvFilesOptions } from '../../src/engine/kv-files.ts';
import { KV_BLOCK } from '../../src/kernels/kernels.ts';

export const BLOCK_BYTES = 512;
export const FILE_BYTES = KV_HEADER_BYTES + BLOCK_BYTES;

/** Ids of whole blocks: one number per block, and every number stands for 64 ids of its own. */
export function idsOf(...blocks: number[]): number[] {
  return blocks.flatMap(seed => Array.from({ length: KV_BLOCK }, (_, i) => (seed * 7919 + i * i) % 100_000));
}

/** What a block of a conversation holds: it depends on every token up to its end. */
export function payloadOf(ids: ArrayLike<number>, block: number, bytes = BLOCK_BYTES): Buffer {
  const seed = createHash('sha256').update(JSON.stringify(Array.from(ids).slice(0, (block + 1) * KV_BLOCK)));
  return Buffer.alloc(bytes, seed.digest());
}

export class Scene {
  readonly directory: string;
  readonly notes: string[] = [];

  constructor(directory: string) {
    this.directory = directory;
  }

  open(options: Partial<KvFilesOptions> = {}): KvFiles {
    return new KvFiles({
      directory: this.directory,
      identity: Buffer.from('model'),
      blockBytes: BLOCK_BYTES,
      maxBytes: 1e9,
      note: line => this.notes.push(line),
      ...options,
    });
  }

  /** The directory of the one identity in use. */
  get path(): string {
    return join(this.directory, fs.readdirSync(this.directory).find(name => /^[0-9a-f]{64}$/.test(name))!);
  }

  /** Paths of the block files, in the order of their blocks. */
  get files(): string[] {
    const names = fs.readdirSync(this.path).filter(name => name.endsWith('.kv'));
    return names.sort().map(name => join(this.path, name));
  }
}

export function saveAll(files: KvFiles, ids: ArrayLike<number>, most?: number): number {
  return files.save(ids, (block, into) => into.set(payloadOf(ids, block, into.length)), most);
}

/** Restores everything that is found; returns the tokens. Throws when a byte is not what was saved. */
export function restoreAll(files: KvFiles, ids: ArrayLike<number>): number {
  let expected = 0;
  const restored = files.restore(ids, 0, Number.POSITIVE_INFINITY, (block, bytes) => {
    if (block !== expected++) throw new Error(`block ${block} came out of order`);
    if (!payloadOf(ids, block, bytes.length).equals(bytes)) throw new Error(`block ${block} has other bytes`);
  });
  if (restored !== expected) throw new Error(`${restored} blocks reported, ${expected} stored`);
  return restored * KV_BLOCK;
}

/**
 * A process that runs `body` with `fs`, `scene`, `files`, `idsOf`, `saveAll` and `restoreAll`, and prints what it returns.
 * `ulimit` goes to the shell that starts it.
 */
export async function inChild(
  directory: string,
  body: string,
  options: SpawnOptions & { ulimit?: string } = {},
): Promise<{ value: unknown; signal: string | null }> {
  const script = `
    import fs from 'node:fs';
    import { Scene, idsOf, saveAll, restoreAll } from ${JSON.stringify(import.meta.filename)};
    const scene = new Scene(${JSON.stringify(directory)});
    const value = await (async () => { ${body} })();
    fs.writeSync(1, JSON.stringify(value ?? null));`;
  const shell = `${options.ulimit === undefined ? '' : `ulimit ${options.ulimit}; `}exec "$0" "$@"`;
  const args = ['-c', shell, process.execPath, '--input-type=module', '-e', script];
  const child = spawn('sh', args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout!.on('data', chunk => (out += chunk));
  child.stderr!.on('data', chunk => (err += chunk));
  const [code, signal] = await new Promise<[number | null, string | null]>(resolve =>
    child.on('close', (...end) => resolve(end)),
  );
  if (code !== 0 && signal === null) throw new Error(err);
  return { value: out === '' ? null : JSON.parse(out), signal };
}
