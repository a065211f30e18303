/** How far Linux reads ahead of a page fault, a setting of the whole disk: what mapped weights are read by. */

import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../src/common/errors.ts';

export class ReadAhead {
  readonly #file: string | undefined;
  #before: number | null = null;

  /** Of the disk that holds `path`. `root` is another one in tests. */
  constructor(path: string, root = '/sys/dev/block') {
    const { dev } = statSync(path);
    // the encoding of Linux: 12 bits of major number between the two parts of the minor one
    const disk = join(root, `${(dev >> 8) & 0xfff}:${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`);
    // a partition has no queue of its own
    this.#file = ['queue', '../queue'].map(queue => `${disk}/${queue}/read_ahead_kb`).find(file => existsSync(file));
  }

  /** Null where nothing tells. */
  get kb(): number | null {
    return this.#file === undefined ? null : Number(readFileSync(this.#file, 'utf8'));
  }

  /** Needs root. */
  set(kb: number): void {
    if (this.#file === undefined) throw new UsageError('NO_READ_AHEAD', '--read-ahead: this disk has no such setting');
    this.#before ??= this.kb;
    writeFileSync(this.#file, String(kb));
  }

  restore(): void {
    if (this.#before !== null) writeFileSync(this.#file!, String(this.#before));
    this.#before = null;
  }
}
