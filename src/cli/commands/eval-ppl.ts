/** coli eval ppl: how well the model predicts a text. */

import { closeSync, openSync, readSync } from 'node:fs';
import { RequestError } from '../../common/errors.ts';
import { evalPerplexity } from '../../eval/perplexity.ts';
import { perplexityJson, perplexityText } from '../eval-report.ts';
import { Interrupts } from '../interrupts.ts';
import { openModel } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { Progress, tokenAmount } from '../progress.ts';
import { decodeUtf8 } from '../prompt-input.ts';

/** A text is tokenised as a whole, in up to a hundred times its size of memory; test sets have a few MB. */
const MAX_TEXT_BYTES = 16 * 1024 * 1024;
const READ_BYTES = 1024 * 1024;

export interface PerplexityFlags extends EngineFlags {
  text: string;
  window?: number;
  json?: boolean;
}

export async function perplexity(flags: PerplexityFlags): Promise<number> {
  new Interrupts().listen();
  const text = readText(flags.text);
  const json = flags.json === true;
  const engine = await openModel(flags, json);
  try {
    const progress = new Progress();
    const report = await evalPerplexity(engine, text, flags.window, (done, total) => {
      if (!json) progress.update('scored', done, total, tokenAmount);
    }).finally(() => progress.clear());
    if (report.predictedTokens < 1) {
      throw new RequestError('TEXT_TOO_SHORT', `${flags.text} has fewer than two tokens`, {
        hint: 'give a longer text',
      });
    }
    if (json) writeJson(perplexityJson(engine.info.directory, flags.text, report));
    else writeText(perplexityText(report));
    return 0;
  } finally {
    await engine.close();
  }
}

function readText(file: string): string {
  let bytes: Buffer | null;
  try {
    bytes = readAtMost(file, MAX_TEXT_BYTES);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new RequestError('TEXT_UNREADABLE', `cannot read ${file}: ${reason}`, { hint: 'check --text', cause });
  }
  if (bytes === null) {
    throw new RequestError('TEXT_TOO_LARGE', `${file} has more than ${MAX_TEXT_BYTES} bytes`, {
      hint: 'give a part of it: a perplexity hardly changes after a few megabytes',
      details: { file, limit: MAX_TEXT_BYTES },
    });
  }
  return decodeUtf8(bytes, file);
}

/** The whole file or pipe; null, and no more than that read, when it is longer than `limit` bytes. */
function readAtMost(file: string, limit: number): Buffer | null {
  const fd = openSync(file, 'r');
  try {
    const parts: Buffer[] = [];
    for (let bytes = 0; bytes <= limit; ) {
      const part = Buffer.allocUnsafe(READ_BYTES);
      const count = readSync(fd, part);
      if (count === 0) return Buffer.concat(parts);
      parts.push(part.subarray(0, count));
      bytes += count;
    }
    return null;
  } finally {
    closeSync(fd);
  }
}
