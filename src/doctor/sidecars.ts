/** Checks of what lies beside the model: files of our own, each bound to one model. */

import fs from 'node:fs';
import { join, resolve } from 'node:path';
import { fingerprint } from '../engine/identity.ts';
import { BLOCK_NAME, KV_HEADER_BYTES } from '../engine/kv-block-file.ts';
import { fail, pass, skip, warn } from './findings.ts';
import type { Check, Context, Finding } from './types.ts';

/** Headers of so many blocks are looked at: a directory may hold a hundred thousand. */
const MAX_BLOCKS_READ = 1000;
const WRITABLE_BY_OTHERS = 0o022;

function kvDirectory({ found, options }: Context): Finding {
  if (options.kvDir === undefined) return skip('no --kv-dir given');
  const path = resolve(options.kvDir);
  const stat = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return pass('not there yet: the server makes it', { path });
  const uid = process.geteuid?.();
  if (!stat.isDirectory()) return fail('not a directory', 'give --kv-dir a directory of its own', { path });
  if (uid !== undefined && stat.uid !== uid && stat.uid !== 0) {
    return fail('it belongs to another user', 'give --kv-dir a directory of your own', { path });
  }
  if (uid !== undefined && (stat.mode & WRITABLE_BY_OTHERS) !== 0) {
    return fail('other users can write there', `chmod go-w ${path}`, { path });
  }
  const names = fs.readdirSync(path).filter(name => BLOCK_NAME.test(name));
  const looked = names.slice(0, MAX_BLOCKS_READ).map(name => identityOf(join(path, name)));
  const own = fingerprint(found.files!, { ...options, model: found.path! });
  const ours = looked.filter(identity => identity === own).length;
  const unreadable = looked.filter(identity => identity === null).length;
  const details = { path, blocks: names.length, looked_at: looked.length, of_this_model: ours, unreadable };
  if (unreadable > 0) {
    return warn(
      `${unreadable} of ${looked.length} blocks cannot be read`,
      'delete them: they are computed again',
      details,
    );
  }
  if (names.length > 0 && ours === 0) {
    return warn('none of its blocks is of this model and these settings', 'use one directory for each model', details);
  }
  return pass(`${ours} of ${looked.length} blocks are of this model`, details);
}

/** Hex; null when the file is too short or cannot be read. */
function identityOf(path: string): string | null {
  const header = Buffer.alloc(KV_HEADER_BYTES);
  try {
    const fd = fs.openSync(
      path,
      fs.constants.O_RDONLY | (fs.constants.O_NOFOLLOW ?? 0) | (fs.constants.O_NONBLOCK ?? 0),
    );
    try {
      if (fs.readSync(fd, header, 0, header.length, 0) < header.length) return null;
      return header.toString('hex', 32, 64);
    } finally {
      fs.closeSync(fd);
    }
  } catch {
    return null;
  }
}

const group = 'sidecars';

export const SIDECAR_CHECKS: readonly Check[] = [
  { id: 'sidecars.kv-dir', group, needs: ['model.tensors'], run: kvDirectory },
];
