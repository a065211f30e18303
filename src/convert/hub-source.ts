/**
 * A model on the hub as the source of a conversion: its headers first, then one file at a time, in a directory inside the destination.
 * Files that lie whole in the cache are read there.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ColiError, ConvertError, HubError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { CONTAINER_INDEX_FILE } from '../formats/container-index.ts';
import { listNames, readExact, withFile } from '../formats/files.ts';
import { INDEX_FILE } from '../formats/shard-index.ts';
import { repoFolder } from '../hub/cache-layout.ts';
import { digestOf, type HubFile } from '../hub/hub-file.ts';
import type { RepoName } from '../hub/names.ts';
import { bytesHere } from '../hub/pull-files.ts';
import { type HubRepo, openRepo } from '../hub/repo.ts';
import type { Timing } from '../hub/retry.ts';
import { selectFiles } from '../hub/select.ts';
import type { HubSettings } from '../hub/settings.ts';
import { openModel } from '../models/open.ts';
import { type Companions, configHash, findCompanions, isCompanion } from './companions.ts';
import { DOWNLOADS } from './files.ts';
import { baseName, fetchHeaders } from './remote-headers.ts';
import type { ConvertSource } from './source.ts';
import { type ConvertState, readState } from './state.ts';

/** They are held in memory; the largest published tokenizers have about 35 MB, indexes of shards 30 MB. */
const MAX_SMALL_BYTES = 256 * MIB;

const WEIGHTS = /\.(?:safetensors|gguf)$/i;

export interface HubSourceOptions {
  readonly name: RepoName;
  readonly settings: HubSettings;
  /** Of the conversion: files are held there, and an unfinished one says which commit it began with. */
  readonly destination: string;
  readonly include?: readonly string[];
  readonly timing?: Timing;
  readonly signal?: AbortSignal;
  /** Headers that have come, of how many. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** Lists the repository and fetches small files and headers. Throws HubError, or what is wrong with the model. */
export async function openHubSource(options: HubSourceOptions): Promise<ConvertSource> {
  const { name, settings, timing, signal, destination } = options;
  const begun = unfinished(destination, name);
  const repo = await openRepo(name.id, begun?.commit ?? name.revision, { settings, timing, signal });
  const { weights, small } = chooseFiles(repo, options.include);
  const temporary = fs.mkdtempSync(join(tmpdir(), 'coli-headers-'));
  try {
    for (const file of small) await bring(repo, file, settings.cache, join(temporary, baseName(file)), signal);
    const headers = await fetchHeaders(repo, weights, temporary, options);
    const { checkpoint, companions } = openHeaders(temporary, name.id, weights);
    const files = checkpoint.files.map(({ path }) => weights.find(each => `${name.id}/${baseName(each)}` === path)!);
    const identity = {
      repo: { id: name.id, revision: name.revision, commit: repo.commit },
      config: configHash(companions),
      files: files.map(file => ({ name: baseName(file), bytes: file.bytes, version: digestOf(file) })),
    };
    const held = new HeldFiles(repo, files, headers, { cache: settings.cache, destination });
    return { checkpoint, companions, identity, ...held.asSource() };
  } catch (error) {
    if (error instanceof ColiError) error.message = error.message.replaceAll(temporary, name.id);
    throw error;
  } finally {
    fs.rmSync(temporary, { recursive: true, force: true });
  }
}

/** A moving branch must not change what is converted halfway: an unfinished conversion stays with its commit. */
function unfinished(destination: string, { id, revision }: RepoName): ConvertState['source']['repo'] {
  const repo = readState(resolve(destination))?.source.repo ?? null;
  return repo?.id === id && repo.revision === revision ? repo : null;
}

/** Weights of one directory, and the small files beside them. */
function chooseFiles(repo: HubRepo, include?: readonly string[]): { weights: HubFile[]; small: HubFile[] } {
  const { chosen } = selectFiles(repo.files, include);
  const weights = chosen.filter(({ path }) => WEIGHTS.test(path));
  if (weights.length === 0) throw ambiguous(repo.id, 'no weights', chosen);
  const directories = [...new Set(weights.map(directoryOf))];
  if (directories.length !== 1) throw ambiguous(repo.id, 'weights in several directories', weights);
  if (new Set(weights.map(isSafetensors)).size > 1) throw ambiguous(repo.id, 'safetensors and GGUF files', weights);
  const [directory] = directories;
  const isNeeded = (name: string): boolean =>
    isCompanion(name) || name === CONTAINER_INDEX_FILE || (name === INDEX_FILE && weights.some(isSafetensors));
  const beside = repo.files.filter(file => directoryOf(file) === directory && isNeeded(baseName(file)));
  const names = new Set(beside.map(baseName));
  const above = repo.files.filter(file => !file.path.includes('/') && isCompanion(file.path) && !names.has(file.path));
  const small = [...beside, ...above];
  for (const file of small) if (file.bytes > MAX_SMALL_BYTES) throw tooLarge(repo.id, file);
  return { weights, small };
}

function tooLarge(id: string, { path, bytes }: HubFile): ConvertError {
  const what = `${id}/${path} has ${bytes} bytes; files beside the weights may have ${MAX_SMALL_BYTES}`;
  return new ConvertError('FILE_TOO_LARGE', what, {
    hint: 'this is not the file that its name promises: take the model from a source you trust',
    details: { file: path, got: bytes, expected: MAX_SMALL_BYTES },
  });
}

function isSafetensors({ path }: HubFile): boolean {
  return /\.safetensors$/i.test(path);
}

function directoryOf({ path }: HubFile): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

/** The blob of a file in the cache, when it is whole. */
function cached(cache: string, { id }: HubRepo, file: HubFile): string | null {
  const path = join(repoFolder(cache, id).blobs, digestOf(file));
  const stat = fs.lstatSync(path, { throwIfNoEntry: false });
  return stat?.isFile() && stat.size === file.bytes ? path : null;
}

async function bring(repo: HubRepo, file: HubFile, cache: string, target: string, signal?: AbortSignal): Promise<void> {
  const here = cached(cache, repo, file);
  if (here === null) await repo.download(file, target, { signal });
  else fs.copyFileSync(here, target);
}

/** Opened by its headers; names and messages are those of the hub. */
function openHeaders(
  directory: string,
  id: string,
  weights: readonly HubFile[],
): { checkpoint: Checkpoint; companions: Companions } {
  const path = weights.every(isSafetensors) ? directory : join(directory, baseName(weights[0]));
  const checkpoint = openModel(path);
  if (checkpoint.gguf && checkpoint.files.length !== weights.length)
    throw ambiguous(id, 'several GGUF models', weights);
  const files = checkpoint.files.map(file => ({ ...file, path: file.path.replace(directory, id) }));
  const { files: small, absent } = findCompanions(path, checkpoint, directory);
  // the directory goes before they are written
  const kept = small.map(file => {
    const content = file.read();
    return { ...file, read: () => content };
  });
  return { checkpoint: { ...checkpoint, directory: id, files }, companions: { files: kept, absent } };
}

function ambiguous(id: string, what: string, weights: readonly HubFile[]): ConvertError {
  const names = listNames(weights.map(({ path }) => path));
  return new ConvertError('SOURCE_AMBIGUOUS', `${id}: ${what} were chosen: ${names}`, {
    hint: "name the files of one model with --include, for example --include '*Q8_0*.gguf' or 'DIRECTORY/*'",
  });
}

class HeldFiles {
  readonly #repo: HubRepo;
  readonly #files: readonly HubFile[];
  readonly #headers: ReadonlyMap<HubFile, Uint8Array>;
  readonly #cache: string;
  readonly #directory: string;

  constructor(
    repo: HubRepo,
    files: readonly HubFile[],
    headers: ReadonlyMap<HubFile, Uint8Array>,
    { cache, destination }: { cache: string; destination: string },
  ) {
    this.#repo = repo;
    this.#files = files;
    this.#headers = headers;
    this.#cache = cache;
    this.#directory = join(resolve(destination), DOWNLOADS);
  }

  asSource(): Pick<ConvertSource, 'heldBytes' | 'presentBytes' | 'fetch' | 'keepOnly' | 'assertUnchanged'> {
    return {
      heldBytes: file => (cached(this.#cache, this.#repo, this.#files[file]) ? 0 : this.#files[file].bytes),
      presentBytes: file =>
        cached(this.#cache, this.#repo, this.#files[file])
          ? 0
          : bytesHere(this.#pathOf(this.#files[file]), this.#files[file]),
      fetch: (file, signal, onProgress) => this.#fetch(this.#files[file], signal, onProgress),
      keepOnly: files => this.#keepOnly(files),
      // names in these directories are digests, and a file gets its name when its bytes have that digest
      assertUnchanged: () => {},
    };
  }

  #pathOf(file: HubFile): string {
    return join(this.#directory, digestOf(file));
  }

  async #fetch(file: HubFile, signal?: AbortSignal, onProgress?: (bytes: number) => void): Promise<string> {
    const path = cached(this.#cache, this.#repo, file) ?? this.#pathOf(file);
    const isHere = fs.statSync(path, { throwIfNoEntry: false })?.size === file.bytes;
    if (!isHere) await this.#repo.download(file, path, { signal, onProgress });
    this.#requireHeader(file, path);
    return path;
  }

  /** The plan was made from bytes that nothing vouched for. */
  #requireHeader(file: HubFile, path: string): void {
    const expected = this.#headers.get(file)!;
    const found = new Uint8Array(expected.length);
    withFile(path, fd => readExact(fd, found, 0, path));
    if (Buffer.compare(found, expected) === 0) return;
    throw new HubError('HUB_BAD_ANSWER', `${this.#repo.id}/${file.path}: its header came differently before`, {
      hint: 'give the same command again; if this happens again, a proxy changes files on the way',
      details: { file: file.path },
    });
  }

  #keepOnly(files: ReadonlySet<number>): void {
    if (!fs.existsSync(this.#directory)) return;
    const kept = [...files].map(file => digestOf(this.#files[file]));
    for (const name of fs.readdirSync(this.#directory)) {
      if (!kept.some(digest => name.startsWith(digest))) fs.rmSync(join(this.#directory, name), { force: true });
    }
  }
}
