/** Every byte of the mirrors, against their receipts or the model. */

import { join } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { formatBytes } from '../common/units.ts';
import { verifyMirror } from '../mirror/verify.ts';
import { fail, pass, skip } from './findings.ts';
import type { Context, Finding } from './types.ts';

const MAX_TOLD = 5;

/** A directory that is not there is told by mirror.files. */
export async function mirrorHashes({ found, options }: Context): Promise<Finding> {
  const { mirrors = [], signal, onProgress } = options;
  if (mirrors.length === 0) return skip('no --mirror given');
  const wrong: { file: string; problem: string }[] = [];
  let bytes = 0;
  let checked = 0;
  let isStopped = false;
  for (const directory of mirrors) {
    try {
      const report = await verifyMirror({
        files: found.files!,
        directory,
        signal,
        onProgress: ({ doneBytes, totalBytes }) => onProgress?.({ id: 'mirror.hashes', doneBytes, totalBytes }),
      });
      checked += report.files.length;
      bytes += report.goodBytes;
      for (const { name, problem } of report.files) if (problem) wrong.push({ file: join(directory, name), problem });
    } catch (error) {
      if (!(error instanceof ColiError)) throw error;
      isStopped = error.code === 'MIRROR_STOPPED';
      if (isStopped) break;
      wrong.push({ file: directory, problem: error.message });
    }
  }
  const details = { checked, bytes, wrong };
  if (wrong.length > 0) {
    const told = wrong.slice(0, MAX_TOLD).map(({ file, problem }) => `${file}: ${problem}`);
    if (wrong.length > MAX_TOLD) told.push(`and ${wrong.length - MAX_TOLD} more`);
    return fail(told.join('; '), 'coli mirror stage copies anew what it has copied; replace other files', details);
  }
  if (isStopped) return skip('interrupted: nothing wrong in the mirrors that were read until then', details);
  if (checked === 0) return skip('the mirrors have no file of the model', details);
  return pass(`${formatBytes(bytes)} of mirrors agree with their receipts or the model`, details);
}
