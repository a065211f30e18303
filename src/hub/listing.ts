/** What a repository holds at one revision. The package of the hub asks and turns pages; every value is checked here. */

import type { HubError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';
import type { HubClient } from './client.ts';
import { checkFileName, MAX_FILES } from './file-names.ts';
import type { HubFile } from './hub-file.ts';
import { isCommit, type RepoName } from './names.ts';
import { badAnswer } from './refusals.ts';

/** Pages have up to 1000 files; empty ones that point at each other must end too. */
const MAX_PAGES = 200;

export interface Listing {
  /** 40 hex digits; what the revision stood for when it was asked. */
  readonly commit: string;
  readonly files: readonly HubFile[];
}

/** Asks for the commit of the revision, then for the files of that commit. */
export async function listRepository(client: HubClient, name: RepoName, signal?: AbortSignal): Promise<Listing> {
  const { listFiles, modelInfo } = await import('@huggingface/hub');
  const origin = new URL(client.endpoint).origin;
  let pages = 0;
  // The package would demand tokens of one form and send them to whatever address the next page has: ours does neither.
  const ask = async (input: unknown): Promise<Response> => {
    const url = String(input);
    if (new URL(url).origin !== origin || ++pages > MAX_PAGES) {
      throw badAnswer(`the listing of ${name.id} goes on at an address that is not followed`, 'check HF_ENDPOINT');
    }
    return client.json(url, name.id, signal);
  };
  const common = { hubUrl: client.endpoint, fetch: ask as typeof fetch };
  try {
    const info = await modelInfo({ ...common, name: name.id, revision: name.revision, additionalFields: ['sha'] });
    const commit = checkedCommit(info.sha, name);
    const files: HubFile[] = [];
    for await (const entry of listFiles({ ...common, repo: name.id, revision: commit, recursive: true })) {
      if (entry.type !== 'file') continue;
      files.push(checkedFile(entry, name));
      if (files.length > MAX_FILES)
        throw badAnswer(`${name.id} lists more than ${MAX_FILES} files`, 'name another one');
    }
    return { commit, files };
  } catch (error) {
    // a TypeError of the package when the answer has another form than the one it expects
    if (!(error instanceof TypeError)) throw error;
    throw badAnswer(`the hub's answer for ${name.id} has not the expected form: ${error.message}`, 'check HF_ENDPOINT');
  }
}

function checkedCommit(sha: unknown, { id, revision }: RepoName): string {
  if (typeof sha === 'string' && isCommit(sha) && (!isCommit(revision) || sha === revision)) return sha;
  throw badAnswer(`the hub names no usable commit for ${id}@${revision}`, 'check HF_ENDPOINT');
}

function checkedFile(entry: { path: unknown; size: unknown; oid?: unknown; lfs?: unknown }, name: RepoName): HubFile {
  const { path, size, oid } = entry;
  if (typeof path !== 'string') throw badAnswer(`${name.id} lists a file without a name`, 'check HF_ENDPOINT');
  checkFileName(path);
  const lfs = entry.lfs as { oid?: unknown; size?: unknown } | null | undefined;
  if (!isSize(size) || (lfs && lfs.size !== size)) throw badEntry(name, path, 'its sizes make no sense');
  if (lfs) {
    if (typeof lfs.oid !== 'string' || !/^[0-9a-f]{64}$/.test(lfs.oid)) throw badEntry(name, path, 'no SHA-256');
    return { path, bytes: size, sha256: lfs.oid, gitSha1: null };
  }
  if (typeof oid !== 'string' || !/^[0-9a-f]{40}$/.test(oid)) throw badEntry(name, path, 'no digest');
  return { path, bytes: size, sha256: null, gitSha1: oid };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function badEntry({ id }: RepoName, path: string, what: string): HubError {
  return badAnswer(`${id} lists ${quote(path)} in a way that cannot be used: ${what}`, 'check HF_ENDPOINT', { path });
}
