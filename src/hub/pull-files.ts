/** Several files at once, with the bytes of all of them counted together. */

import { HubError } from '../common/errors.ts';
import { statOf } from '../formats/files.ts';
import type { DownloadResult } from './download.ts';
import type { HubFile } from './hub-file.ts';
import { PARTIAL_SUFFIX } from './partial-file.ts';
import type { Target } from './pull-targets.ts';
import type { HubRepo } from './repo.ts';
import { throwIfStopped } from './retry.ts';

/** One connection rarely fills a line; more than a few take turns on the same disk. */
const FILES_AT_ONCE = 4;
/** What is wrong with one file says nothing about the others: they are fetched before it is told. */
const ONE_FILE_ONLY: readonly string[] = ['FILE_DIGEST', 'HUB_BAD_ANSWER'];

export interface PullProgress {
  /** Bytes that are on the disk, those of earlier runs included. */
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** Bytes that came over the network since the start; 0 while what is there is being checked. */
  readonly fetchedBytes: number;
}

export interface PulledFile {
  readonly file: HubFile;
  /** Null for a file that was there already. */
  readonly download: DownloadResult | null;
}

export interface FetchOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: PullProgress) => void;
}

/** Fetches what is missing and publishes every file as it is finished; all finish before the first error of one file is thrown. */
export async function fetchFiles(
  repo: HubRepo,
  files: readonly HubFile[],
  target: Target,
  { signal, onProgress }: FetchOptions,
): Promise<PulledFile[]> {
  const places = Map.groupBy(files, file => target.pathOf(file));
  // small files first: they say what the rest will be
  const queue = [...places].sort(([, [a]], [, [b]]) => a.bytes - b.bytes || (a.path < b.path ? -1 : 1));
  const tally = new Tally(
    queue.map(([path, [file]]) => ({ path, file })),
    onProgress,
  );
  const stop = new AbortController();
  const all = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const pulled: PulledFile[] = [];
  const failures: unknown[] = [];

  const fetchOne = async (path: string, same: readonly HubFile[]) => {
    throwIfStopped(all);
    const isHere = await target.isFinished(same[0], all);
    const tell = (bytes: number) => tally.tell(path, bytes);
    const download = isHere ? null : await repo.download(same[0], path, { signal: all, onProgress: tell });
    for (const file of same) {
      await target.publish(file);
      pulled.push({ file, download });
    }
  };
  const work = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      try {
        await fetchOne(...next);
      } catch (error) {
        failures.push(error);
        if (!isOfOneFile(error)) stop.abort(error);
      }
    }
  };
  tally.show();
  await Promise.all(Array.from({ length: FILES_AT_ONCE }, work));
  if (failures.length > 0) throw worst(failures, repo.id);
  return pulled.sort((a, b) => (a.file.path < b.file.path ? -1 : 1));
}

/** Bytes of this file that need not come: all of it, or what an earlier run left. */
export function bytesHere(path: string, file: HubFile): number {
  if (statOf(path)?.size === file.bytes) return file.bytes;
  return Math.min(statOf(path + PARTIAL_SUFFIX)?.size ?? 0, file.bytes);
}

class Tally {
  readonly #bytesOf: Map<string, number>;
  readonly #totalBytes: number;
  readonly #onProgress: FetchOptions['onProgress'];
  #doneBytes: number;
  #fetchedBytes = 0;

  constructor(places: readonly { path: string; file: HubFile }[], onProgress: FetchOptions['onProgress']) {
    this.#bytesOf = new Map(places.map(({ path, file }) => [path, bytesHere(path, file)]));
    this.#totalBytes = places.reduce((sum, { file }) => sum + file.bytes, 0);
    this.#doneBytes = [...this.#bytesOf.values()].reduce((sum, bytes) => sum + bytes, 0);
    this.#onProgress = onProgress;
  }

  /** `bytes` of the file at `path` are there; fewer than before when it began anew. */
  tell(path: string, bytes: number): void {
    const more = bytes - this.#bytesOf.get(path)!;
    this.#bytesOf.set(path, bytes);
    this.#doneBytes += more;
    this.#fetchedBytes += Math.max(0, more);
    this.show();
  }

  show(): void {
    this.#onProgress?.({
      doneBytes: this.#doneBytes,
      totalBytes: this.#totalBytes,
      fetchedBytes: this.#fetchedBytes,
    });
  }
}

function isOfOneFile(error: unknown): boolean {
  return error instanceof HubError && ONE_FILE_ONLY.includes(error.code);
}

/** What ended everything, else what is wrong with the first file. */
function worst(failures: readonly unknown[], id: string): unknown {
  const general = failures.find(error => !isOfOneFile(error));
  if (general instanceof HubError && general.code === 'HUB_STOPPED') {
    return new HubError('HUB_STOPPED', `the download of ${id} was stopped`, { hint: general.hint });
  }
  if (general !== undefined || failures.length === 1) return general ?? failures[0];
  const more = failures.length === 2 ? 'one more file is' : `${failures.length - 1} more files are`;
  const { code, message, hint, details } = failures[0] as HubError;
  return new HubError(code, `${message} (${more} wrong too)`, { hint, details });
}
