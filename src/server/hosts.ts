/**
 * Who a server on this machine answers. A web page may make a browser send requests here: under a name of its own that resolves to
 * this machine (refused by the Host check), or to the address itself (refused by the Origin check).
 */

import net from 'node:net';
import { RequestError, UsageError } from '../common/errors.ts';

export interface HostRules {
  /** The address the server was told to bind. */
  readonly bind: string;
  readonly allowedHosts: readonly string[];
  readonly corsOrigins: readonly string[];
}

/** What a request says about where it was sent and where it comes from. */
export interface RequestSource {
  readonly host: string | undefined;
  readonly origin: string | undefined;
  /** The address of this machine on which it arrived. */
  readonly localAddress: string | undefined;
}

/** 127.0.0.0/8, ::1 and localhost: no other machine can reach them. */
export function isLoopback(host: string): boolean {
  const name = bare(host);
  return name === 'localhost' || name === '::1' || (net.isIPv4(name) && name.startsWith('127.'));
}

/** Throws HOST_FORBIDDEN or ORIGIN_FORBIDDEN. */
export function checkSource(source: RequestSource, rules: HostRules): void {
  const name = hostName(source.host);
  if (name === null || !isAllowedHost(name, source.localAddress, rules)) throw hostForbidden(source.host);
  const { origin } = source;
  if (origin === undefined || rules.corsOrigins.includes(origin) || isSameOrigin(origin, source.host!)) return;
  throw originForbidden(origin);
}

function isAllowedHost(name: string, localAddress: string | undefined, { bind, allowedHosts }: HostRules): boolean {
  if (isLoopback(name) || name === bare(bind)) return true;
  // an address, unlike a name, cannot be made to mean another machine
  if (net.isIP(name) !== 0 && name === localAddress?.replace(/^::ffff:/, '')) return true;
  return allowedHosts.some(allowed => bare(allowed) === name);
}

/** Name or address of a Host header without its port; null when it is none. */
function hostName(header: string | undefined): string | null {
  const match = /^(\[[0-9a-f:.]+\]|[^\s:/@[\]]+)(?::\d{1,5})?$/i.exec(header ?? '');
  return match ? bare(match[1]) : null;
}

function bare(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1').toLowerCase();
}

/** A page that this server itself has served, directly or through a proxy with TLS. */
function isSameOrigin(origin: string, host: string): boolean {
  return origin === `http://${host}` || origin === `https://${host}`;
}

function hostForbidden(host: string | undefined): RequestError {
  const said = host === undefined ? 'no host' : `the host ${JSON.stringify(host)}`;
  return new RequestError('HOST_FORBIDDEN', `the request names ${said}, which is not a name of this server`, {
    hint: 'use localhost or the address it listens on, or start it with --allowed-host NAME',
    details: { host: host ?? null },
  });
}

function originForbidden(origin: string): RequestError {
  if (origin === 'null') {
    return new RequestError('ORIGIN_FORBIDDEN', 'pages without an origin ("null") may not use this server', {
      hint: 'they cannot be told apart, so none is allowed: serve the page over HTTP, and name its origin with --cors-origin',
      details: { origin },
    });
  }
  return new RequestError('ORIGIN_FORBIDDEN', `pages of ${JSON.stringify(origin)} may not use this server`, {
    hint: 'to allow them, start it with --cors-origin ORIGIN, spelled exactly like this',
    details: { origin },
  });
}

/** An origin as browsers send it: scheme, host, port, nothing else. Throws UsageError. */
export function checkOrigin(text: string): string {
  if (/^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(text)) return text;
  if (text === 'null') {
    throw new UsageError('BAD_FLAG', '--cors-origin cannot be null: files and sandboxed frames of every page have it', {
      hint: 'serve the page over HTTP, and give its origin, like http://localhost:5173',
    });
  }
  throw new UsageError('BAD_FLAG', `--cors-origin must be one origin, not ${JSON.stringify(text)}`, {
    hint: 'write it as browsers do, like http://localhost:5173: no path, no slash at the end, no *',
  });
}

/** A host name or address without a port. Throws UsageError. */
export function checkAllowedHost(text: string): string {
  if (hostName(text) !== null && !text.includes('*') && !/\]?:\d+$/.test(text.replace(/^\[.*\]$/, ''))) return text;
  throw new UsageError('BAD_FLAG', `--allowed-host must be one host name, not ${JSON.stringify(text)}`, {
    hint: 'write the name alone, like box.example: no scheme, no port, no *',
  });
}

export interface BindChoice {
  readonly host: string;
  readonly apiKey: string | null;
  readonly insecure: boolean;
}

/**
 * Refuses an address that other machines can reach while anybody may use it. Returns what the user should be warned of.
 * Throws UsageError UNSAFE_BIND.
 */
export function checkBind({ host, apiKey, insecure }: BindChoice): string[] {
  if (isLoopback(host) || apiKey !== null) return [];
  if (!insecure) {
    throw new UsageError('UNSAFE_BIND', `--host ${host} lets other machines in, and no --api-key is set`, {
      hint: 'set --api-key (or COLI_API_KEY), or give --insecure if everybody who can reach it may use it',
    });
  }
  return [`WARNING: anybody who can reach ${host} may use this server: no --api-key is set, and --insecure allows it`];
}
