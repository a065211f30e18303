/** Where a conversion reads from: files that lie here, or files that come from the hub one by one and go again. */

import { basename } from 'node:path';
import { assertUnchanged } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { openModel } from '../models/open.ts';
import { type Companions, configHash, findCompanions } from './companions.ts';
import type { ConvertState } from './state.ts';

export interface ConvertSource {
  readonly checkpoint: Checkpoint;
  readonly companions: Companions;
  /** What a later run must find again to continue. */
  readonly identity: ConvertState['source'];
  /** What holding a file takes in the destination; 0 for a file that lies elsewhere and stays there. */
  heldBytes(file: number): number;
  /** Of them, what an earlier run has brought already. */
  presentBytes(file: number): number;
  /** Where all bytes of a file can be read; it is fetched when it is not there. `onProgress`: bytes of it that are there. */
  fetch(file: number, signal?: AbortSignal, onProgress?: (bytes: number) => void): Promise<string>;
  /** No file but these will be read again. */
  keepOnly(files: ReadonlySet<number>): void;
  /** Throws MODEL_CHANGED when a file is not what it was at the beginning. */
  assertUnchanged(): void;
}

/** A model directory or a GGUF file. Reads headers only. */
export function openLocalSource(path: string): ConvertSource {
  const checkpoint = openModel(path);
  const companions = findCompanions(checkpoint.directory, checkpoint);
  const files = checkpoint.files.map(file => {
    return { name: basename(file.path), bytes: file.bytes, version: `mtime ${file.mtimeMs}` };
  });
  return {
    checkpoint,
    companions,
    identity: { repo: null, config: configHash(companions), files },
    heldBytes: () => 0,
    presentBytes: () => 0,
    fetch: async file => checkpoint.files[file].path,
    keepOnly: () => {},
    assertUnchanged: () => assertUnchanged(checkpoint.files),
  };
}
