/** Some bytes of a file, for headers. Their digest is unknown: what they say is believed once the whole file has come. */

import type { HubClient } from './client.ts';
import type { HubFile } from './hub-file.ts';
import { isWebPage, LOGIN_PAGE_HINT, wrongBytes } from './refusals.ts';
import { retrying } from './retry.ts';

/** Bytes `first` to `end` - 1, which lie in the file. A server that knows no ranges is read from the beginning and left early. */
export function readRange(
  client: HubClient,
  url: string,
  what: string,
  file: HubFile,
  first: number,
  end: number,
  signal?: AbortSignal,
): Promise<Uint8Array> {
  const wrong = (reason: string, hint?: string) => wrongBytes(what, file.path, reason, hint);
  return retrying(client.timing, signal, () =>
    client.get(url, what, { range: `bytes=${first}-${end - 1}` }, signal, async (response, chunks) => {
      if (isWebPage(response, file.path)) throw wrong('a web page came in its place', LOGIN_PAGE_HINT);
      const range = response.headers.get('content-range');
      const isRange = response.status === 206;
      if (isRange && !range?.startsWith(`bytes ${first}-`)) throw wrong(`bytes ${first}- were asked for, others came`);
      const target = new Uint8Array(end - first);
      let position = isRange ? first : 0;
      for await (const chunk of chunks) {
        const from = Math.max(0, first - position);
        const to = Math.min(chunk.length, end - position);
        if (to > from) target.set(chunk.subarray(from, to), position + from - first);
        position += chunk.length;
        if (position >= end) return target;
      }
      throw wrong(`it ended at byte ${position}, before byte ${end}`);
    }),
  );
}
