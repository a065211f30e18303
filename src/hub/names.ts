/** How people name a model of the hub: ORG/NAME, or ORG/NAME@REV for a branch, a tag or a commit. */

import { UsageError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';

/** The hub's own limit for ORG/NAME. */
const MAX_ID_CHARACTERS = 96;
/** Branch names of git stay far below; each of their parts becomes a file name in the cache. */
const MAX_REVISION_CHARACTERS = 200;

export const DEFAULT_REVISION = 'main';

export interface RepoName {
  /** ORG/NAME. */
  readonly id: string;
  readonly revision: string;
  /** Whether the revision was written; without it the default holds. */
  readonly hasRevision: boolean;
}

/** Throws BAD_MODEL_NAME with what is wrong. */
export function parseRepoName(text: string): RepoName {
  const name = tryRepoName(text);
  if (name) return name;
  throw new UsageError('BAD_MODEL_NAME', `${quote(text)} is not the name of a model on the hub`, {
    hint: /^https?:/.test(text)
      ? 'write the last two parts of the address alone: ORG/NAME'
      : 'write ORG/NAME or ORG/NAME@REVISION, like allenai/OLMoE-1B-7B-0924-Instruct',
  });
}

/** Null for everything that is not a name, such as most paths. */
export function tryRepoName(text: string): RepoName | null {
  const at = text.indexOf('@');
  const id = at < 0 ? text : text.slice(0, at);
  const revision = at < 0 ? DEFAULT_REVISION : text.slice(at + 1);
  return isRepoId(id) && isRevision(revision) ? { id, revision, hasRevision: at >= 0 } : null;
}

/** `--` would make the folder name in the cache ambiguous; the hub forbids it too. */
export function isRepoId(id: string): boolean {
  const parts = id.split('/');
  return id.length <= MAX_ID_CHARACTERS && parts.length === 2 && parts.every(isPlainPart) && !/--|\.\./.test(id);
}

function isPlainPart(part: string): boolean {
  return /^[A-Za-z0-9_](?:[\w.-]*\w)?$/.test(part);
}

function isRevision(revision: string): boolean {
  if (revision.length > MAX_REVISION_CHARACTERS) return false;
  return revision.split('/').every(part => /^\w(?:[\w.+-]*[\w+-])?$/.test(part) && !part.includes('..'));
}

export function isCommit(text: string): boolean {
  return /^[0-9a-f]{40}$/.test(text);
}

/** As it is to be written on a command line. */
export function nameText({ id, revision, hasRevision }: RepoName): string {
  return hasRevision ? `${id}@${revision}` : id;
}
