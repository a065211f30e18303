/** The small files that belong to a model besides its weights. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { namesIn, reading, statOf } from '../formats/files.ts';
import { findGguf } from '../formats/gguf-files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from '../formats/json.ts';
import { readGgufTokenizer } from '../tokenizer/gguf-tokenizer.ts';
import { jsonText } from './files.ts';

export const CONFIG_FILE = 'config.json';
const GENERATION_FILE = 'generation_config.json';
const TOKENIZER_FILE = 'tokenizer.json';
const TOKENIZER_CONFIG_FILE = 'tokenizer_config.json';

/** Configuration, tokenizer, template and licence under the names that Hugging Face repositories use. */
const COMPANION =
  /^(?:config\.json|generation_config\.json|tokenizer.*|special_tokens_map\.json|added_tokens\.json|chat_template.*|vocab\.json|merges\.txt|.*\.tiktoken|licen[cs]e.*|notice.*)$/i;

const USUAL = [GENERATION_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, 'special_tokens_map.json'];

export function isCompanion(name: string): boolean {
  return COMPANION.test(name);
}

export interface Companion {
  readonly name: string;
  readonly bytes: number;
  /** Of a GGUF file's metadata, not copied. */
  readonly isMade: boolean;
  read(): Uint8Array;
}

export interface Companions {
  readonly files: readonly Companion[];
  /** Usual files that are not there, by name. */
  readonly absent: readonly string[];
}

/**
 * `path` is what the checkpoint was opened by. Of a directory its regular files (links are followed); of a GGUF file what its metadata
 * say, as the files that say the same, and what lies in `beside`, if that is a directory. Throws TokenizerError when a vocabulary
 * cannot be written as tokenizer.json.
 */
export function findCompanions(path: string, checkpoint: Checkpoint, beside = path): Companions {
  const gguf = checkpoint.gguf ? findGguf(path) : null;
  return gguf ? companionsOfGguf(beside, gguf[0], checkpoint) : companionsOfDirectory(path);
}

/** SHA-256 of config.json as the destination will have it. */
export function configHash({ files }: Companions): string {
  const config = files.find(({ name }) => name === CONFIG_FILE);
  return createHash('sha256')
    .update(config?.read() ?? '')
    .digest('hex');
}

function companionsOfDirectory(directory: string): Companions {
  const files = filesOf(directory);
  const names = files.map(({ name }) => name);
  const absent = USUAL.filter(name => !names.includes(name));
  if (!hasChatTemplate(directory, names)) absent.push('chat_template.jinja');
  return { files, absent };
}

function filesOf(directory: string): Companion[] {
  return namesIn(directory).flatMap(name => {
    const path = join(directory, name);
    const stat = isCompanion(name) ? statOf(path) : undefined;
    if (!stat?.isFile()) return [];
    return [{ name, bytes: stat.size, isMade: false, read: () => reading(path, () => fs.readFileSync(path)) }];
  });
}

/** A template is a file of its own or a field of tokenizer_config.json. */
function hasChatTemplate(directory: string, names: readonly string[]): boolean {
  if (names.some(name => name.startsWith('chat_template'))) return true;
  if (!names.includes(TOKENIZER_CONFIG_FILE)) return false;
  return 'chat_template' in readJsonObject(join(directory, TOKENIZER_CONFIG_FILE), MAX_CONFIG_BYTES);
}

/** The config is that of the metadata, which is what the engine goes by; a tokenizer.json beside the file comes before its own. */
function companionsOfGguf(beside: string, first: string, checkpoint: Checkpoint): Companions {
  const found = statOf(beside)?.isDirectory() ? filesOf(beside) : [];
  const files = found.filter(({ name }) => name !== CONFIG_FILE && name !== GENERATION_FILE);
  files.push(made(CONFIG_FILE, checkpoint.config));
  if (checkpoint.generationConfig) files.push(made(GENERATION_FILE, checkpoint.generationConfig));
  let hasTemplate = files.some(({ name }) => name.startsWith('chat_template'));
  if (!files.some(({ name }) => name === TOKENIZER_FILE)) {
    const { tokenizer, config } = readGgufTokenizer(first);
    files.push(made(TOKENIZER_FILE, tokenizer), made(TOKENIZER_CONFIG_FILE, config));
    hasTemplate ||= 'chat_template' in config;
  }
  const names = files.map(({ name }) => name);
  const absent = USUAL.filter(name => !names.includes(name) && name !== 'special_tokens_map.json');
  if (!hasTemplate) absent.push('chat_template.jinja');
  return { files: files.sort((a, b) => (a.name < b.name ? -1 : 1)), absent };
}

function made(name: string, content: Readonly<Record<string, unknown>>): Companion {
  const bytes = new TextEncoder().encode(jsonText(content));
  return { name, bytes: bytes.length, isMade: true, read: () => bytes };
}
