/** A conversion under way: what is finished is kept, the rest is written in the order of the plan. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ColiError } from '../common/errors.ts';
import { syncDirectory } from '../common/whole-file.ts';
import { CONTAINER_INDEX_FILE, containerIndexToJson } from '../formats/container-index.ts';
import { encodeSafetensorsHeader, SafetensorsWriter } from '../formats/safetensors-writer.ts';
import { INDEX_FILE } from '../formats/shard-index.ts';
import { checkResult } from './check.ts';
import { CONFIG_FILE } from './companions.ts';
import { EncodePool } from './encode-pool.ts';
import { DOWNLOADS, jsonText, PARTIAL, publish, writeWhole } from './files.ts';
import { containerIndex, shardIndex } from './index-files.ts';
import { notFinite, type Piece, piecesOf } from './pieces.ts';
import { filesNeeded, SHARD_OPTIONS } from './shards.ts';
import type { ConvertSource } from './source.ts';
import { type ConvertState, STATE_FILE, writeState } from './state.ts';
import { TensorStream } from './tensor-stream.ts';
import type { ConversionPlan, ConvertOptions, ConvertProgress, PlannedShard, PlannedTensor } from './types.ts';

/** Bytes hashed at a time when a shard is checked. */
const HASH_STEP_BYTES = 2 ** 22;

export class Run {
  readonly #plan: ConversionPlan;
  readonly #source: ConvertSource;
  readonly #directory: string;
  readonly #options: ConvertOptions;
  readonly #state: ConvertState;
  readonly #pool: EncodePool;
  /** Of the output, and what must come for it. */
  #total: number;
  #done = 0;
  fetchedBytes = 0;

  constructor(plan: ConversionPlan, source: ConvertSource, options: ConvertOptions) {
    this.#plan = plan;
    this.#source = source;
    this.#directory = plan.destination;
    this.#options = options;
    this.#state = structuredClone(plan.state);
    this.#total = plan.totalBytes;
    this.#pool = new EncodePool(options.threads ?? 1);
  }

  async all(): Promise<{ kept: string[]; written: string[] }> {
    const { shards, finishedShards } = this.#plan;
    this.#prepare();
    const kept: string[] = [];
    for (const shard of shards) {
      if (finishedShards.includes(shard.name) && (await this.#verify(shard))) kept.push(shard.name);
    }
    const rest = shards.filter(({ name }) => !kept.includes(name));
    for (const file of filesNeeded(rest)) this.#total += this.#source.heldBytes(file);
    for (const [i, shard] of rest.entries()) {
      this.#source.keepOnly(filesNeeded(rest.slice(i)));
      await this.#write(shard, await this.#fetch(shard));
    }
    this.#finish();
    return { kept, written: rest.map(({ name }) => name) };
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  /** From here on the destination is ours: the state file says so before anything else is written. */
  #prepare(): void {
    writeState(this.#directory, this.#state);
    for (const name of fs.readdirSync(this.#directory)) {
      if (name.endsWith(PARTIAL)) fs.rmSync(join(this.#directory, name));
    }
  }

  /** Whether a shard of an earlier run still is what that run wrote. */
  async #verify(shard: PlannedShard): Promise<boolean> {
    const hashes = this.#state.finished[shard.name].sha256;
    const fd = fs.openSync(join(this.#directory, shard.name), 'r');
    const before = this.#done;
    try {
      const header = encodeSafetensorsHeader(shard.tensors, SHARD_OPTIONS);
      const found = new Uint8Array(header.length);
      fs.readSync(fd, found, 0, header.length, 0);
      let good = Buffer.compare(found, header) === 0;
      let position = header.length;
      for (const tensor of shard.tensors) {
        if (!good) break;
        good = hashRange(fd, position, tensor.bytes) === hashes[tensor.name];
        position += tensor.bytes;
        await this.#advance('verify', shard.name, tensor.bytes);
      }
      this.#done = before + (good ? shard.bytes : 0);
      return good;
    } finally {
      fs.closeSync(fd);
    }
  }

  /** Brings what a shard is made of; the result is where each file of the source can be read. */
  async #fetch({ files }: PlannedShard): Promise<ReadonlyMap<number, string>> {
    const paths = new Map<number, string>();
    for (const file of files) {
      const name = this.#plan.checkpoint.files[file].path;
      const before = this.#done;
      let here = this.#source.presentBytes(file);
      const path = await this.#source.fetch(file, this.#options.signal, bytes => {
        this.fetchedBytes += Math.max(0, bytes - here);
        here = bytes;
        this.#done = before + bytes;
        this.#report('fetch', name);
      });
      this.#done = before;
      this.#arrived(file);
      paths.set(file, path);
    }
    return paths;
  }

  readonly #counted = new Set<number>();
  #arrived(file: number): void {
    if (!this.#counted.has(file)) this.#done += this.#source.heldBytes(file);
    this.#counted.add(file);
  }

  async #write(shard: PlannedShard, paths: ReadonlyMap<number, string>): Promise<void> {
    const path = join(this.#directory, shard.name);
    const writer = new SafetensorsWriter(path + PARTIAL, shard.tensors, SHARD_OPTIONS);
    const before = this.#done;
    let sha256: Record<string, string>;
    try {
      sha256 = await this.#writeTensors(writer, shard, paths);
      writer.close();
    } finally {
      writer.abort();
    }
    this.#source.assertUnchanged();
    publish(this.#directory, shard.name);
    this.#state.finished[shard.name] = { bytes: shard.bytes, sha256 };
    writeState(this.#directory, this.#state);
    this.#done = before + shard.bytes;
  }

  /** Name -> hash of each tensor. */
  async #writeTensors(
    writer: SafetensorsWriter,
    shard: PlannedShard,
    paths: ReadonlyMap<number, string>,
  ): Promise<Record<string, string>> {
    const stream = new TensorStream(writer);
    for await (const [piece, result] of this.#pool.inOrder(this.#pieces(shard, paths))) {
      stream.goTo(piece.tensor, piece.from === 0 ? piece.part.offset : null);
      const bytes = await this.#bytesOf(piece, result);
      stream.append(bytes);
      await this.#advance('write', shard.name, bytes.length);
    }
    return stream.end();
  }

  *#pieces(shard: PlannedShard, paths: ReadonlyMap<number, string>): Generator<Piece & { tensor: PlannedTensor }> {
    for (const tensor of shard.tensors) {
      for (const part of tensor.parts) {
        for (const piece of piecesOf(this.#plan.checkpoint, part, file => paths.get(file)!)) yield { ...piece, tensor };
      }
    }
  }

  async #bytesOf(piece: Piece, result: () => Promise<Uint8Array>): Promise<Uint8Array> {
    try {
      return await result();
    } catch (error) {
      throw error instanceof ColiError && error.code === 'NOT_FINITE' ? notFinite(piece, error) : error;
    }
  }

  /** The small files, config.json last: without it the directory is no model yet. Then the check of the result. */
  #finish(): void {
    const plan = this.#plan;
    this.#source.keepOnly(new Set());
    fs.rmSync(join(this.#directory, DOWNLOADS), { recursive: true, force: true });
    const index = containerIndex(plan, this.#state);
    writeWhole(this.#directory, CONTAINER_INDEX_FILE, jsonText(containerIndexToJson(index)));
    writeWhole(this.#directory, INDEX_FILE, jsonText(shardIndex(plan)));
    const { files } = this.#source.companions;
    const config = files.filter(({ name }) => name === CONFIG_FILE);
    for (const file of [...files.filter(({ name }) => name !== CONFIG_FILE), ...config]) {
      writeWhole(this.#directory, file.name, file.read());
    }
    this.#report('check', plan.shards.at(-1)!.name);
    checkResult(plan);
    this.#source.assertUnchanged();
    fs.rmSync(join(this.#directory, STATE_FILE));
    syncDirectory(this.#directory);
  }

  /** Reports, lets the event loop turn, and stops when asked to. */
  async #advance(phase: ConvertProgress['phase'], shard: string, bytes: number): Promise<void> {
    this.#done += bytes;
    this.#report(phase, shard);
    await nextTurn();
    this.#options.signal?.throwIfAborted();
  }

  #report(phase: ConvertProgress['phase'], shard: string): void {
    this.#options.onProgress?.({ phase, shard, doneBytes: this.#done, totalBytes: this.#total });
  }
}

function hashRange(fd: number, from: number, bytes: number): string {
  const hash = createHash('sha256');
  const buffer = new Uint8Array(Math.min(HASH_STEP_BYTES, bytes));
  for (let at = 0; at < bytes; ) {
    const count = fs.readSync(fd, buffer, 0, Math.min(buffer.length, bytes - at), from + at);
    if (count === 0) break;
    hash.update(buffer.subarray(0, count));
    at += count;
  }
  return hash.digest('hex');
}
