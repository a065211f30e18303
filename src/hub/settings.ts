/** Where the hub is, who asks, and where the cache lies: the variables that all tools of the hub share. */

import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { UsageError } from '../common/errors.ts';
import { isThere, readSmallFile } from '../formats/files.ts';

const DEFAULT_ENDPOINT = 'https://huggingface.co';

/** Tokens have about 40 characters. */
const MAX_TOKEN_BYTES = 4096;

export interface HubSettings {
  /** Address without a slash at its end. */
  readonly endpoint: string;
  readonly token: string | null;
  /** Directory of the standard cache; it need not exist. */
  readonly cache: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads HF_ENDPOINT, HF_TOKEN or the token file, and the place of the cache. Throws UsageError for a value that cannot be used. */
export function hubSettings(env: Environment = process.env): HubSettings {
  if (/^(1|true|yes|on)$/i.test(env['HF_HUB_OFFLINE'] ?? '')) {
    throw new UsageError('HUB_OFFLINE', 'HF_HUB_OFFLINE forbids to ask the hub', {
      hint: 'unset HF_HUB_OFFLINE to download',
    });
  }
  return { endpoint: endpointOf(env), token: tokenOf(env), cache: hubCache(env) };
}

/** The directory in which all tools of the hub keep what they downloaded. */
export function hubCache(env: Environment = process.env): string {
  const named = env['HF_HUB_CACHE'] || env['HUGGINGFACE_HUB_CACHE'];
  return named ? resolve(fromHome(named)) : join(hubHome(env), 'hub');
}

function hubHome(env: Environment): string {
  if (env['HF_HOME']) return resolve(fromHome(env['HF_HOME']));
  return resolve(fromHome(env['XDG_CACHE_HOME'] || '~/.cache'), 'huggingface');
}

function fromHome(path: string): string {
  return path === '~' || path.startsWith('~/') ? join(homedir(), path.slice(2)) : path;
}

function endpointOf(env: Environment): string {
  const text = (env['HF_ENDPOINT'] || DEFAULT_ENDPOINT).replace(/\/+$/, '');
  const url = URL.canParse(text) ? new URL(text) : null;
  const plain = url !== null && url.search === '' && url.hash === '' && url.username === '' && url.password === '';
  if (plain && /^https?:$/.test(url.protocol)) return text;
  throw new UsageError('BAD_ENDPOINT', 'HF_ENDPOINT is not a plain http or https address', {
    hint: `write it like ${DEFAULT_ENDPOINT}${url?.username ? '; a token belongs into HF_TOKEN' : ''}`,
  });
}

/** The variable comes before the file that a login leaves. Null without either. */
function tokenOf(env: Environment): string | null {
  const variable = (env['HF_TOKEN'] || env['HUGGING_FACE_HUB_TOKEN'] || '').trim();
  if (variable !== '') return checkedToken(variable, 'HF_TOKEN');
  const file = env['HF_TOKEN_PATH'] ? resolve(fromHome(env['HF_TOKEN_PATH'])) : join(hubHome(env), 'token');
  if (!isThere(file)) return null;
  const text = new TextDecoder().decode(readSmallFile(file, MAX_TOKEN_BYTES)).trim();
  return text === '' ? null : checkedToken(text, file);
}

/** It goes into a header; its value stands in no message. */
function checkedToken(token: string, where: string): string {
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw new UsageError('BAD_TOKEN', `the token of ${where} has characters that no token has`, {
    hint: 'copy the token again, without spaces and line breaks',
  });
}
