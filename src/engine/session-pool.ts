/**
 * The sessions, and who gets which: a prompt goes where most of it has been computed already, and what nobody has used for
 * the longest time makes room. A session that was reused gives the bits of a new one, because its keys and values are those
 * of exactly the tokens that the prompt begins with.
 */

import { KV_BLOCK } from '../kernels/kernels.ts';
import type { SessionMemory } from '../layers/session-memory.ts';
import type { KvFiles } from './kv-files.ts';
import type { Session } from './session.ts';

/**
 * A conversation whose end was changed goes on in its session, if what it forgets is at most this share of what it keeps. Else
 * what is shared is copied, and the other conversation stays.
 */
const MAX_LOST_SHARE = 0.25;

export class SessionPool {
  readonly #cache: SessionMemory;
  readonly #files: KvFiles | null;
  /** Free ones, the one unused for the longest time first. */
  readonly #free: Session[];
  readonly #all: readonly Session[];
  /** Sessions that may hold what no file has. */
  readonly #unsaved = new Set<Session>();
  /** Tokens that came from files. */
  restoredTokens = 0;

  constructor(sessions: readonly Session[], cache: SessionMemory, files: KvFiles | null) {
    this.#cache = cache;
    this.#files = files;
    this.#all = sessions;
    this.#free = [...sessions];
  }

  /** A session that holds the first tokens of the prompt, as many as are known but not the last; null when all are in use. */
  take(promptIds: readonly number[]): Session | null {
    if (this.#free.length === 0) return null;
    // the logits of the last token are not kept
    const most = promptIds.length - 1;
    const prefixOf = (session: Session) => session.rewindLength(Math.min(session.commonPrefix(promptIds), most));
    const common = Math.min(most, Math.max(...this.#all.map(session => session.commonPrefix(promptIds))));
    const nearest = mostBy(this.#free, prefixOf);
    const oldest = this.#free[0];
    const lost = nearest.length - prefixOf(nearest);
    const session = lost <= prefixOf(nearest) * MAX_LOST_SHARE ? nearest : oldest;
    this.#free.splice(this.#free.indexOf(session), 1);
    const donor = mostBy(this.#all, prefixOf);
    const shared = prefixOf(donor);
    const kept = prefixOf(session);
    if (session.length > kept) this.#save(session);
    if (shared > kept) session.copyFrom(donor, shared);
    else session.truncate(kept);
    this.#restore(session, promptIds, most);
    session.expectPrompt(promptIds.length, common);
    return session;
  }

  give(session: Session): void {
    this.#free.push(session);
    if (this.#files) this.#unsaved.add(session);
  }

  /** Writes one block of what nobody uses now; false when all is saved. For idle times: taking a session then need not wait. */
  saveSome(): boolean {
    for (const session of this.#unsaved) {
      if (this.#free.includes(session) && this.#save(session, 1) > 0) return true;
      this.#unsaved.delete(session);
    }
    return false;
  }

  /** Saves all that the sessions hold. */
  close(): void {
    for (const session of this.#all) this.#save(session);
    this.#files?.close();
  }

  /** Returns the bytes written. */
  #save(session: Session, blocks?: number): number {
    const load = (block: number, into: Uint8Array) => this.#cache.readBlock(session.slot, block, into);
    return this.#files?.save(session.ids, load, blocks) ?? 0;
  }

  /** Goes on from files where they know more of the prompt than the session. */
  #restore(session: Session, promptIds: readonly number[], most: number): void {
    if (!this.#files) return;
    const known = Math.floor(session.length / KV_BLOCK);
    const found = Math.floor(this.#files.find(promptIds.slice(0, most)) / KV_BLOCK);
    if (found <= known) return;
    const blocks = this.#files.restore(promptIds, known, found, (block, bytes) =>
      this.#cache.writeBlock(session.slot, block, bytes),
    );
    const before = session.length;
    const restored = Math.max(before, (known + blocks) * KV_BLOCK);
    session.extend(promptIds, before, restored);
    this.restoredTokens += restored - before;
  }
}

/** The last of those with the largest value: the one used most recently. */
function mostBy(sessions: readonly Session[], value: (session: Session) => number): Session {
  return sessions.reduce((best, session) => (value(session) >= value(best) ? session : best));
}
