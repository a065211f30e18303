/** Flags of `coli chat` that are about a server, and what goes with them. */

import type { Command } from 'commander';
import { UsageError } from '../common/errors.ts';
import { addFlags, type FlagRow, givenEngineFlags } from './options.ts';

const HOW =
  'give the address that coli serve prints, like http://127.0.0.1:8080, or the port of a server on this machine';

export interface AttachFlags {
  /** An address, or the port of a server on this machine. */
  attach?: string | number;
  apiKey?: string;
}

const ATTACH_FLAGS: readonly FlagRow[] = [
  {
    flags: '--attach <url>',
    help: 'use a running server instead of loading a model: the address that coli serve prints, or a port of this machine',
    parse: parseAttach,
  },
  {
    flags: '--api-key <key>',
    help: 'key that the server asks for; better as COLI_API_KEY, which other users cannot see',
    parse: parseKey,
  },
];

export function addAttachFlags(command: Command): Command {
  return addFlags(command, ATTACH_FLAGS);
}

/** Throws UsageError for flags that would do nothing beside, or without, --attach. */
export function checkAttachFlags(command: Command): void {
  const { attach, apiKey, ignoreEos } = command.opts<AttachFlags & { ignoreEos?: boolean }>();
  if (attach === undefined) {
    if (apiKey === undefined) return;
    throw new UsageError('BAD_FLAG', '--api-key is for a server and needs --attach', {
      hint: 'leave it out or add one',
    });
  }
  const given = givenEngineFlags(command);
  if (given.length > 0) {
    throw new UsageError('BAD_FLAG', `${given.join(', ')} cannot be used with --attach: the model is the server's`, {
      hint: `leave ${given.length === 1 ? 'it' : 'them'} out, or give ${given.length === 1 ? 'it' : 'them'} to coli serve`,
    });
  }
  if (ignoreEos) {
    throw new UsageError('BAD_FLAG', '--ignore-eos cannot be used with --attach: servers do not offer it', {
      hint: 'leave it out',
    });
  }
}

/** The value of --attach: a port stays a number, an address loses its /v1. Throws UsageError. */
export function parseAttach(text: string): string | number {
  if (/^\d+$/.test(text)) {
    const port = Number(text);
    if (port >= 1 && port <= 65_535) return port;
    throw badAttach(`"${text}" is not a port`);
  }
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) throw badAttach(`"${text}" is not an http or https address`);
  if (url.username !== '' || url.password !== '') {
    throw badAttach('the address has a name or password in it', 'give the key with --api-key or COLI_API_KEY');
  }
  if (url.search !== '' || url.hash !== '') throw badAttach(`"${text}" has more than host, port and path`);
  return url.origin + url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '').replace(/\/+$/, '');
}

/** What a header can carry; an empty variable is none. Throws UsageError. */
export function parseKey(text: string): string {
  if (/^[\x21-\x7e]+$/.test(text)) return text;
  throw new UsageError('BAD_FLAG', 'the API key is empty or has spaces or characters beyond ASCII', {
    hint: 'give the key that the server was started with',
  });
}

function badAttach(what: string, hint = HOW): UsageError {
  return new UsageError('BAD_FLAG', `--attach: ${what}`, { hint });
}
