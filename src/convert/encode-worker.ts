/** A thread of a conversion: jobs come, bytes go back. */

import { parentPort } from 'node:worker_threads';
import { type ErrorWire, errorToWire } from '../common/errors.ts';
import { type EncodeJob, encodeJob } from './encode.ts';

export type EncodeReply = { readonly bytes: Uint8Array } | { readonly error: ErrorWire };

parentPort!.on('message', (job: EncodeJob) => {
  try {
    const bytes = encodeJob(job);
    parentPort!.postMessage({ bytes } satisfies EncodeReply, [bytes.buffer as ArrayBuffer]);
  } catch (error) {
    parentPort!.postMessage({ error: errorToWire(error) } satisfies EncodeReply);
  }
});
