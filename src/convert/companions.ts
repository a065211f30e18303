/** The small files that belong to a model besides its weights. */

import { join } from 'node:path';
import { namesIn, statOf } from '../formats/files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from '../formats/json.ts';

/** Configuration, tokenizer, template and licence under the names that Hugging Face repositories use. */
const COMPANION =
  /^(?:config\.json|generation_config\.json|tokenizer.*|special_tokens_map\.json|added_tokens\.json|chat_template.*|vocab\.json|merges\.txt|.*\.tiktoken|licen[cs]e.*|notice.*)$/i;

const USUAL = ['generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json'];

export interface Companions {
  readonly copied: readonly string[];
  /** Usual files that are not there, by name. */
  readonly absent: readonly string[];
  readonly bytes: number;
}

/** Regular files only; symbolic links are followed. */
export function findCompanions(directory: string): Companions {
  const copied = namesIn(directory).filter(name => COMPANION.test(name) && statOf(join(directory, name))?.isFile());
  const absent = USUAL.filter(name => !copied.includes(name));
  if (!hasChatTemplate(directory, copied)) absent.push('chat_template.jinja');
  const bytes = copied.reduce((sum, name) => sum + (statOf(join(directory, name))?.size ?? 0), 0);
  return { copied, absent, bytes };
}

/** A template is a file of its own or a field of tokenizer_config.json. */
function hasChatTemplate(directory: string, names: readonly string[]): boolean {
  if (names.some(name => name.startsWith('chat_template'))) return true;
  if (!names.includes('tokenizer_config.json')) return false;
  return 'chat_template' in readJsonObject(join(directory, 'tokenizer_config.json'), MAX_CONFIG_BYTES);
}
