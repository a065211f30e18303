/**
 * llama.cpp as node-llama-cpp ships it. Its binding is used directly: every llama_decode is called with given ids, nothing is
 * sampled, and no queue of JavaScript stands between. Only what is called here is typed.
 */

import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../src/common/errors.ts';

export const LLAMA_VERSION = '3.21.1';
const HERE = fileURLToPath(new URL('.', import.meta.url));

export interface Addon {
  setLogger(log: (level: number, message: string) => void): void;
  setLoggerLogLevel(level: number): void;
  loadBackends(folder: string): void;
  init(): Promise<void>;
  systemInfo(): string;
  AddonModel: new (path: string, options: Record<string, unknown>) => { init(): Promise<boolean> };
  AddonContext: new (model: unknown, options: Record<string, unknown>) => AddonContext;
  AddonSampler: new (model: unknown) => { applyConfig(config: Record<string, unknown>): void };
}

export interface AddonContext {
  init(): Promise<boolean>;
  initBatch(tokens: number): void;
  /** Rows of the batch whose logits were asked for. */
  addToBatch(sequence: number, position: number, ids: Uint32Array, logitRows: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  sampleToken(row: number, sampler: unknown): Promise<number>;
  removeTokenCellsFromSequence(sequence: number, from: number, to: number): boolean;
}

/** The folder with the prebuilt addon and its libraries. Throws UsageError when it is not installed. */
export function findBinaries(): string {
  const modules = join(HERE, 'node_modules');
  const manifest = join(modules, 'node-llama-cpp', 'package.json');
  const version = existsSync(manifest) ? JSON.parse(readFileSync(manifest, 'utf8')).version : null;
  if (version !== LLAMA_VERSION) {
    const found = version === null ? 'is not installed' : `has version ${version}`;
    throw new UsageError('PEER_MISSING', `node-llama-cpp below bench/peer ${found}: run npm ci --prefix bench/peer`);
  }
  const name = `${process.platform}-${process.arch}`;
  const folder = join(modules, '@node-llama-cpp', name, 'bins', name);
  if (!existsSync(join(folder, 'llama-addon.node'))) {
    throw new UsageError('PEER_PLATFORM', `node-llama-cpp ${LLAMA_VERSION} has no CPU binaries for ${name}`);
  }
  return folder;
}

export function loadAddon(folder: string): Addon {
  return createRequire(import.meta.url)(join(folder, 'llama-addon.node'));
}

const ASKED = 'ggml_backend_dev_get_extra_bufts';

/**
 * A folder of CPU libraries that do not repack weights. llama.cpp's --no-repack is no option of node-llama-cpp, and a repacked
 * copy of all weights lies in memory that no limit can reclaim. llama.cpp asks a library for its repacking by a name; in
 * these copies that name is another one, so it finds none. The caller removes the folder.
 */
export function librariesWithoutRepacking(binaries: string): string {
  const libraries = readdirSync(binaries)
    .filter(name => name.startsWith('libggml-cpu'))
    .map(name => ({ name, bytes: readFileSync(join(binaries, name)) }));
  for (const { name, bytes } of libraries) {
    const at = bytes.indexOf(`${ASKED}\0`, 0, 'latin1');
    if (at < 0) throw new Error(`${name} does not offer ${ASKED}`);
    bytes.write('x', at, 'latin1');
  }
  const folder = mkdtempSync(join(tmpdir(), 'coli-peer-'));
  for (const { name, bytes } of libraries) writeFileSync(join(folder, name), bytes);
  return folder;
}
