/**
 * The body of an answer, read as fast as it comes. When a connection breaks, `fetch` drops what came and was not read yet; with a
 * slow disk that could be everything, each time.
 */

import { MIB } from '../common/units.ts';

/** How far reading may be ahead of whoever takes the bytes. */
const MAX_AHEAD_BYTES = 16 * MIB;

/** `onSign` is called whenever bytes come or are taken. Throws what the body throws, after all bytes before it. */
export async function* readAhead(body: ReadableStream<Uint8Array>, onSign: () => void): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  const queue: Uint8Array[] = [];
  let aheadBytes = 0;
  let end: { error: unknown } | 'done' | null = null;
  let changed = Promise.withResolvers<void>();
  const tell = () => {
    onSign();
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  const fill = async () => {
    for (;;) {
      while (aheadBytes > MAX_AHEAD_BYTES) await changed.promise;
      const { value, done } = await reader.read();
      if (done) return;
      queue.push(value);
      aheadBytes += value.length;
      tell();
    }
  };
  const filling = fill()
    .then(
      () => {
        end = 'done';
      },
      error => {
        end = { error };
      },
    )
    .then(tell);
  try {
    for (;;) {
      while (queue.length === 0 && end === null) await changed.promise;
      const chunk = queue.shift();
      if (chunk === undefined) break;
      yield chunk;
      aheadBytes -= chunk.length;
      tell();
    }
    const last = end as { error: unknown } | 'done' | null;
    if (last !== null && last !== 'done') throw last.error;
  } finally {
    aheadBytes = 0;
    tell();
    await reader.cancel().catch(() => {});
    await filling;
  }
}
