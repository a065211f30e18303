/** Which server `--attach` means, and the key it is given. */

import { isLoopback } from '../server/hosts.ts';
import { type RuntimeEntry, runningServers, runtimeDirectory } from '../server/runtime-file.ts';
import { parseKey } from './attach-options.ts';

export interface AttachTarget {
  /** Scheme, host, port and path without /v1 and without a slash at the end. */
  readonly base: string;
  readonly key: string | null;
  /** Other servers of this user, for when nobody is there. */
  readonly others: readonly string[];
}

/**
 * A server of this user that runs on this machine is known by its port and needs no key: its runtime file has a token for
 * programs of the same user, which goes to the very address that the server listens on and nowhere else.
 */
export function attachTarget(
  attach: string | number,
  key: string | undefined,
  servers: readonly RuntimeEntry[] = ownServers(),
  env: NodeJS.ProcessEnv = process.env,
): AttachTarget {
  const entry = servers.find(server =>
    typeof attach === 'number' ? server.port === attach : urlOf(server) === attach,
  );
  const base = typeof attach === 'string' ? attach : entry ? urlOf(entry) : `http://127.0.0.1:${attach}`;
  const fromEnv = env['COLI_API_KEY'];
  const given = key ?? (fromEnv ? parseKey(fromEnv) : null);
  const others = servers.map(urlOf).filter(url => url !== base);
  return { base, key: given ?? entry?.token ?? null, others };
}

/** What the user may not expect of this target. */
export function attachWarnings({ base, key }: AttachTarget): string[] {
  const { protocol, hostname } = new URL(base);
  if (key === null || protocol === 'https:' || isLoopback(hostname)) return [];
  return [`WARNING: the API key and the conversation go to ${hostname} without encryption; https would protect them`];
}

/** Where a server of this machine is reached: "every address" is none to connect to. */
function urlOf({ host, port }: RuntimeEntry): string {
  const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return new URL(`http://${name.includes(':') ? `[${name}]` : name}:${port}`).origin;
}

function ownServers(): RuntimeEntry[] {
  try {
    return runningServers(runtimeDirectory());
  } catch {
    // without such a place no server of this user has left a file
    return [];
  }
}
