/** Flags of `coli serve`, and the settings they come to. */

import { UsageError } from '../common/errors.ts';
import { checkAllowedHost, checkOrigin } from '../server/hosts.ts';
import { DEFAULT_SETTINGS, type ServerSettings } from '../server/settings.ts';
import { type EngineFlags, type FlagRow, notEmpty, size, wholeFrom1 } from './options.ts';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** Waits longer than a week are mistakes, and timers of Node end at 24 days. */
const MAX_SECONDS = 7 * 24 * 3600;
/** More requests than this would only wait for hours. */
const MAX_QUEUE = 100_000;

export interface ServeFlags extends EngineFlags {
  host?: string;
  port?: number;
  modelId?: string[];
  apiKey?: string;
  corsOrigin?: string[];
  allowedHost?: string[];
  insecure?: boolean;
  maxQueue?: number;
  queueTimeout?: number;
  grace?: number;
  logLevel?: (typeof LOG_LEVELS)[number];
  logPrompts?: boolean;
  keepaliveComments?: boolean;
}

const within = (flag: string, range: string, accepts: (value: number) => boolean) => (text: string) => {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (accepts(value)) return value;
  throw new UsageError('BAD_FLAG', `${flag} must be ${range}, not "${text}"`, {
    hint: `leave ${flag} out for the default`,
  });
};

const seconds = (flag: string) =>
  within(flag, `seconds from 0 to ${MAX_SECONDS}`, value => value >= 0 && value <= MAX_SECONDS);

const port = within('--port', 'a whole number from 0 (any free port) to 65535', value => {
  return Number.isInteger(value) && value >= 0 && value <= 65_535;
});

/** Of a server that runs. */
export const portInUse = (text: string): number => {
  const value = /^\d+$/.test(text) ? Number(text) : 0;
  if (value >= 1 && value <= 65_535) return value;
  throw new UsageError('BAD_FLAG', `--port must be the port of a server, from 1 to 65535, not "${text}"`, {
    hint: 'leave --port out when only one server runs',
  });
};

const repeated = (check: (text: string) => string) => (text: string, previous: unknown) => [
  ...((previous as string[] | undefined) ?? []),
  check(text),
];

/** What a header can carry, since that is how clients send it. */
const apiKey = (text: string) => {
  if (/^[\x21-\x7e]+$/.test(text)) return text;
  throw new UsageError('BAD_FLAG', '--api-key (or COLI_API_KEY) is empty or has spaces or characters beyond ASCII', {
    hint: 'use letters and digits, such as the output of: openssl rand -hex 24',
  });
};

export const SERVE_FLAGS: readonly FlagRow[] = [
  { flags: '--host <address>', help: 'address to listen on (default: 127.0.0.1)', parse: notEmpty('--host') },
  { flags: '--port <n>', help: 'port to listen on (default: 8080); 0 is any free one', parse: port },
  {
    flags: '--model-id <name>',
    help: 'name by which clients know the model (default: that of its directory); repeated: further names',
    parse: repeated(notEmpty('--model-id')),
  },
  {
    flags: '--api-key <key>',
    help: 'key that clients must send; better as COLI_API_KEY, which other users cannot see',
    env: 'COLI_API_KEY',
    parse: apiKey,
  },
  {
    flags: '--cors-origin <origin>',
    help: 'web pages of this origin may use the server; may be repeated',
    parse: repeated(checkOrigin),
  },
  {
    flags: '--allowed-host <name>',
    help: 'further name of this server, as a proxy passes it on; may be repeated',
    parse: repeated(checkAllowedHost),
  },
  { flags: '--insecure', help: 'allow an address that other machines reach without --api-key' },
  {
    flags: '--slots <n>',
    help: 'conversations in memory and requests that run together (default: 1)',
    parse: wholeFrom1('--slots'),
  },
  {
    flags: '--max-queue <n>',
    help: `requests that may wait (default: ${DEFAULT_SETTINGS.maxQueue})`,
    parse: within('--max-queue', `a whole number from 0 to ${MAX_QUEUE}`, value => {
      return Number.isInteger(value) && value >= 0 && value <= MAX_QUEUE;
    }),
  },
  {
    flags: '--queue-timeout <seconds>',
    help: `how long one may wait (default: ${DEFAULT_SETTINGS.queueTimeoutMs / 1000}); 0: nobody waits`,
    parse: seconds('--queue-timeout'),
  },
  {
    flags: '--kv <encoding>',
    help: 'keys and values in memory; bf16 takes half of it and changes the numbers (default: f32)',
    choices: ['f32', 'bf16'],
  },
  {
    flags: '--kv-dir <dir>',
    help: 'directory that keeps conversations across restarts (not those of qwen3_5_moe and gpt_oss)',
    parse: notEmpty('--kv-dir'),
  },
  {
    flags: '--kv-dir-size <size>',
    help: 'most that it may hold, like 20G (default: 16G)',
    parse: size('--kv-dir-size'),
  },
  {
    flags: '--grace <seconds>',
    help: `how long running requests have when the server stops (default: ${DEFAULT_SETTINGS.graceMs / 1000})`,
    parse: seconds('--grace'),
  },
  { flags: '--log-level <level>', help: 'least important lines to log (default: info)', choices: LOG_LEVELS },
  { flags: '--log-prompts', help: 'log the bodies of requests too' },
  { flags: '--no-keepalive-comments', help: 'no comments on silent streams, for clients that cannot read them' },
];

/** Throws UsageError for flags that would do nothing without, or beside, another. */
export function checkServeFlags({ kvDir, kvDirSize, logPrompts, logLevel }: ServeFlags): void {
  if (kvDirSize !== undefined && kvDir === undefined) {
    throw new UsageError('BAD_FLAG', '--kv-dir-size is about --kv-dir, which is not given', {
      hint: 'leave it out or add --kv-dir',
    });
  }
  if (logPrompts && logLevel !== undefined && LOG_LEVELS.indexOf(logLevel) > LOG_LEVELS.indexOf('info')) {
    throw new UsageError(
      'BAD_FLAG',
      `--log-prompts writes lines of level info, which --log-level ${logLevel} leaves out`,
      {
        hint: 'leave one of them out',
      },
    );
  }
}

/** `directoryName` is the model's. */
export function serverSettings(flags: ServeFlags, directoryName: string, version: string): ServerSettings {
  return {
    ...DEFAULT_SETTINGS,
    host: flags.host ?? DEFAULT_SETTINGS.host,
    port: flags.port ?? DEFAULT_SETTINGS.port,
    modelId: flags.modelId?.[0] ?? directoryName,
    modelAliases: flags.modelId?.slice(1) ?? [],
    apiKey: flags.apiKey ?? null,
    corsOrigins: flags.corsOrigin ?? [],
    allowedHosts: flags.allowedHost ?? [],
    insecure: flags.insecure ?? false,
    slots: flags.slots ?? DEFAULT_SETTINGS.slots,
    maxQueue: flags.maxQueue ?? DEFAULT_SETTINGS.maxQueue,
    queueTimeoutMs: milliseconds(flags.queueTimeout) ?? DEFAULT_SETTINGS.queueTimeoutMs,
    graceMs: milliseconds(flags.grace) ?? DEFAULT_SETTINGS.graceMs,
    keepaliveComments: flags.keepaliveComments ?? true,
    logPrompts: flags.logPrompts ?? false,
    version,
  };
}

function milliseconds(value: number | undefined): number | undefined {
  return value === undefined ? undefined : value * 1000;
}
