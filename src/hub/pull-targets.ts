/** Where the files of a pull go, and what makes a finished one visible. */

import fs from 'node:fs';
import { join, resolve } from 'node:path';
import { StorageError } from '../common/errors.ts';
import { quote, statOf } from '../formats/files.ts';
import { linkBlob, repoFolder, writeRef } from './cache-layout.ts';
import { digestOf, type HubFile } from './hub-file.ts';
import { isCommit } from './names.ts';
import { hasDigest, writing } from './partial-file.ts';
import type { HubRepo } from './repo.ts';

const DESTINATION_LOCK = '.coli-pull.lock';

export interface Target {
  /** The directory that can be opened as a model afterwards. */
  readonly directory: string;
  readonly lock: string;
  pathOf(file: HubFile): string;
  /** Whether the file is there already, whole and right. */
  isFinished(file: HubFile, signal: AbortSignal): Promise<boolean>;
  publish(file: HubFile): Promise<void>;
  /** When all files are there. */
  finish(): Promise<void>;
}

/** The standard cache. A blob gets its name only after its digest was right, so name and size are enough to keep it. */
export function cacheTarget(cache: string, repo: HubRepo): Target {
  const folder = repoFolder(cache, repo.id);
  const pathOf = (file: HubFile) => join(folder.blobs, digestOf(file));
  return {
    directory: join(folder.snapshots, repo.commit),
    lock: folder.lock,
    pathOf,
    isFinished: async file => {
      const stat = fs.lstatSync(pathOf(file), { throwIfNoEntry: false });
      return stat?.isFile() === true && stat.size === file.bytes;
    },
    publish: file => writing(folder.snapshots, async () => linkBlob(folder, repo.commit, file.path, digestOf(file))),
    // last: until then the revision stays what it was
    finish: async () => {
      if (!isCommit(repo.revision))
        await writing(folder.refs, async () => writeRef(folder, repo.revision, repo.commit));
    },
  };
}

/** Plain files. What stands there already is kept when it is the same file, and never replaced. */
export function directoryTarget(destination: string): Target {
  const directory = resolve(destination);
  const pathOf = (file: HubFile) => join(directory, file.path);
  return {
    directory,
    lock: join(directory, DESTINATION_LOCK),
    pathOf,
    isFinished: async (file, signal) => {
      const path = pathOf(file);
      if (statOf(path) === undefined) return false;
      if (await hasDigest(path, file, signal)) return true;
      throw new StorageError('DESTINATION_DIFFERS', `${path} is another file than ${quote(file.path)} of the hub`, {
        hint: 'remove it, or give another directory with --dest',
        details: { file: path },
      });
    },
    publish: async () => {},
    finish: async () => {},
  };
}
