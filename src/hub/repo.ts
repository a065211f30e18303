/** A repository of the hub at one commit: its files, and their bytes one by one. What `coli pull` and the converter use. */

import { type ClientSettings, HubClient } from './client.ts';
import { type DownloadOptions, type DownloadResult, downloadFile } from './download.ts';
import type { HubFile } from './hub-file.ts';
import { listRepository } from './listing.ts';
import { DEFAULT_REVISION, parseRepoName } from './names.ts';
import { readRange } from './ranges.ts';
import type { Timing } from './retry.ts';
import { hubSettings } from './settings.ts';

export interface RepoOptions {
  /** Without it the variables HF_ENDPOINT and HF_TOKEN (or the token file) decide. */
  readonly settings?: ClientSettings;
  readonly timing?: Timing;
  /** Ends the listing; each download has its own. */
  readonly signal?: AbortSignal;
}

export interface HubRepo {
  /** ORG/NAME. */
  readonly id: string;
  readonly revision: string;
  /** 40 hex digits. All files are those of this commit, however long the downloads take. */
  readonly commit: string;
  /** Every file of the commit, in the order of the listing. */
  readonly files: readonly HubFile[];
  /**
   * Puts one file at `destination` (its directory is made), where it appears only when its digest is right; continues what
   * an earlier call left beside it. Throws HubError (FILE_DIGEST, HUB_UNREACHABLE, HUB_GATED, HUB_STOPPED, ...) or
   * StorageError (DISK_FULL, WRITE_FAILED).
   */
  download(file: HubFile, destination: string, options?: DownloadOptions): Promise<DownloadResult>;
  /** Bytes `first` to `end` - 1 of a file, with no digest to compare them with. */
  read(file: HubFile, first: number, end: number, signal?: AbortSignal): Promise<Uint8Array>;
}

/**
 * Lists ORG/NAME at a branch, tag or commit. Throws UsageError for names and variables that cannot be used, HubError for
 * what the hub refuses.
 */
export async function openRepo(
  id: string,
  revision: string = DEFAULT_REVISION,
  options: RepoOptions = {},
): Promise<HubRepo> {
  const name = parseRepoName(`${id}@${revision}`);
  const client = new HubClient(options.settings ?? hubSettings(), options.timing);
  const { commit, files } = await listRepository(client, name, options.signal);
  const urlOf = (file: HubFile): string => {
    const path = file.path.split('/').map(encodeURIComponent).join('/');
    return `${client.endpoint}/${id}/resolve/${commit}/${path}`;
  };
  return {
    id,
    revision,
    commit,
    files,
    download: (file, destination, downloadOptions) =>
      downloadFile(client, urlOf(file), `${id}/${file.path}`, file, destination, downloadOptions),
    read: (file, first, end, signal) => readRange(client, urlOf(file), `${id}/${file.path}`, file, first, end, signal),
  };
}
