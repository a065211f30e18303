/** `coli convert`: rewrites a checkpoint as a container, shard by shard. Run again after any interruption, it continues. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { basename, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ConvertError } from '../common/errors.ts';
import { assertUnchanged, openCheckpoint } from '../formats/checkpoint.ts';
import type { ContainerIndex } from '../formats/checkpoint-types.ts';
import { CONTAINER_INDEX_FILE, CONTAINER_VERSION, containerIndexToJson } from '../formats/container-index.ts';
import { reading } from '../formats/files.ts';
import { encodeSafetensorsHeader, SafetensorsWriter } from '../formats/safetensors-writer.ts';
import { INDEX_FILE } from '../formats/shard-index.ts';
import { resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { isTileLayout } from '../quant/layouts.ts';
import { destinationError, jsonText, PARTIAL, publish, syncDirectory, writeWhole } from './files.ts';
import { lockDestination } from './lock.ts';
import { planConversion, planDestination, RECORD_ALIGNMENT, SHARD_OPTIONS } from './plan.ts';
import { encodePart } from './rows.ts';
import { type ConvertState, STATE_FILE, writeState } from './state.ts';
import type {
  ConversionPlan,
  ConversionReport,
  ConvertOptions,
  ConvertProgress,
  PlannedShard,
  PlannedTensor,
} from './types.ts';

export { planConversion };

const CONFIG_FILE = 'config.json';
/** Bytes hashed at a time when a shard is checked. */
const HASH_STEP_BYTES = 2 ** 22;

/** Converts; resolves when the destination is complete and was opened again. Rejects with ConvertError or ModelFileError. */
export async function convertCheckpoint(options: ConvertOptions): Promise<ConversionReport> {
  const started = performance.now();
  const planned = planConversion(options);
  let unlock = (): void => {};
  try {
    fs.mkdirSync(planned.destination, { recursive: true });
    unlock = lockDestination(planned.destination);
    // another process may have written there since the plan was made
    const plan = { ...planned, ...planDestination(options, planned.checkpoint, planned.shards) };
    const { kept, written } = await runPlan(plan, options);
    return { plan, kept, written, bytes: plan.totalBytes, seconds: (performance.now() - started) / 1000 };
  } catch (error) {
    throw destinationError(planned.destination, error);
  } finally {
    unlock();
  }
}

async function runPlan(plan: ConversionPlan, options: ConvertOptions): Promise<{ kept: string[]; written: string[] }> {
  const run = new Run(plan, options);
  run.prepare();
  const kept: string[] = [];
  const written: string[] = [];
  for (const shard of plan.shards) {
    if (plan.finishedShards.includes(shard.name) && (await run.verify(shard))) kept.push(shard.name);
    else {
      await run.write(shard);
      written.push(shard.name);
    }
  }
  run.finish();
  return { kept, written };
}

class Run {
  readonly #plan: ConversionPlan;
  readonly #directory: string;
  readonly #options: ConvertOptions;
  readonly #state: ConvertState;
  #done = 0;

  constructor(plan: ConversionPlan, options: ConvertOptions) {
    this.#plan = plan;
    this.#directory = plan.destination;
    this.#options = options;
    this.#state = structuredClone(plan.state);
  }

  /** From here on the destination is ours: the state file says so before anything else is written. */
  prepare(): void {
    writeState(this.#directory, this.#state);
    for (const name of fs.readdirSync(this.#directory)) {
      if (name.endsWith(PARTIAL)) fs.rmSync(join(this.#directory, name));
    }
  }

  /** Whether a shard of an earlier run still is what that run wrote. */
  async verify(shard: PlannedShard): Promise<boolean> {
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
        await this.#advance('verify', shard, tensor.bytes);
      }
      this.#done = before + (good ? shard.bytes : 0);
      return good;
    } finally {
      fs.closeSync(fd);
    }
  }

  async write(shard: PlannedShard): Promise<void> {
    const path = join(this.#directory, shard.name);
    const writer = new SafetensorsWriter(path + PARTIAL, shard.tensors, SHARD_OPTIONS);
    const sha256: Record<string, string> = {};
    const before = this.#done;
    try {
      for (const tensor of shard.tensors) sha256[tensor.name] = await this.#writeTensor(writer, shard, tensor);
      writer.close();
    } finally {
      writer.abort();
    }
    assertUnchanged(this.#plan.checkpoint.files);
    publish(this.#directory, shard.name);
    this.#state.finished[shard.name] = { bytes: shard.bytes, sha256 };
    writeState(this.#directory, this.#state);
    this.#done = before + shard.bytes;
  }

  async #writeTensor(writer: SafetensorsWriter, shard: PlannedShard, tensor: PlannedTensor): Promise<string> {
    const hash = createHash('sha256');
    const end = writer.position + tensor.bytes;
    const append = (bytes: Uint8Array): void => {
      writer.append(bytes);
      hash.update(bytes);
    };
    for (const part of tensor.parts) {
      for (const chunk of encodePart(this.#plan.checkpoint, part)) {
        append(chunk);
        await this.#advance('write', shard, chunk.length);
      }
    }
    const padding = end - writer.position;
    append(new Uint8Array(padding));
    await this.#advance('write', shard, padding);
    return hash.digest('hex');
  }

  /** The small files, config.json last: without it the directory is no model yet. Then the check of the result. */
  finish(): void {
    const plan = this.#plan;
    const index = containerIndex(plan, this.#state);
    writeWhole(this.#directory, CONTAINER_INDEX_FILE, jsonText(containerIndexToJson(index)));
    writeWhole(this.#directory, INDEX_FILE, jsonText(shardIndex(plan)));
    const others = plan.copied.filter(name => name !== CONFIG_FILE);
    for (const name of [...others, CONFIG_FILE]) {
      const path = join(plan.source, name);
      const content = reading(path, () => fs.readFileSync(path));
      writeWhole(this.#directory, name, content);
    }
    this.#report('check', plan.shards.at(-1)!);
    checkResult(plan);
    assertUnchanged(plan.checkpoint.files);
    fs.rmSync(join(this.#directory, STATE_FILE));
    syncDirectory(this.#directory);
  }

  /** Reports, lets the event loop turn, and stops when asked to. */
  async #advance(phase: ConvertProgress['phase'], shard: PlannedShard, bytes: number): Promise<void> {
    this.#done += bytes;
    this.#report(phase, shard);
    await nextTurn();
    if (!this.#options.signal?.aborted) return;
    throw new ConvertError('CONVERT_STOPPED', `stopped while writing ${shard.name}; ${this.#directory} is incomplete`, {
      hint: 'give the same command again to continue',
      details: { destination: this.#directory },
    });
  }

  #report(phase: ConvertProgress['phase'], shard: PlannedShard): void {
    const totalBytes = this.#plan.totalBytes;
    this.#options.onProgress?.({ phase, shard: shard.name, doneBytes: this.#done, totalBytes });
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

function shardIndex(plan: ConversionPlan): unknown {
  const tensors = plan.shards.flatMap(shard => shard.tensors.map(({ name, bytes }) => ({ name, bytes, shard })));
  return {
    metadata: { total_size: tensors.reduce((sum, tensor) => sum + tensor.bytes, 0) },
    weight_map: Object.fromEntries(tensors.map(({ name, shard }) => [name, shard.name])),
  };
}

type Described = { role: string; encoding: string; rows: number; columns: number; offset: number };

function containerIndex(plan: ConversionPlan, state: ConvertState): ContainerIndex {
  const matrices = new Map<string, { encoding: string; rows: number; columns: number }>();
  const experts = new Map<string, { parts: Described[] }>();
  const sha256 = new Map<string, string>();
  for (const shard of plan.shards) {
    for (const { name, parts, layer } of shard.tensors) {
      sha256.set(name, state.finished[shard.name].sha256[name]);
      const described = parts.map(({ role, layout, rows, columns, offset }) => {
        return { role, encoding: layout, rows, columns, offset };
      });
      const [{ encoding, rows, columns }] = described;
      if (layer !== null) experts.set(name, { parts: described });
      else if (isTileLayout(parts[0].layout)) matrices.set(name, { encoding, rows, columns });
    }
  }
  const files = plan.checkpoint.files.map(({ path, bytes }) => ({ name: basename(path), bytes }));
  const source = { model_type: plan.family, experts: plan.experts, dense: plan.dense, files };
  return { version: CONTAINER_VERSION, writer: plan.writer, source, matrices, experts, sha256 };
}

/** Opens the container as the engine will: every tensor must resolve, and every record must be one aligned read. */
function checkResult(plan: ConversionPlan): void {
  const result = openCheckpoint(plan.destination);
  const family = familyOf(result.config);
  const config = family.parseConfig(result.config);
  const shape = family.shape(config, { mtp: family.hasMtp(config) });
  const { records } = resolveRecords(result, plan.table, shape, Number.POSITIVE_INFINITY);
  for (const record of records.slice(records.length - plan.table.experts.length)) {
    const [{ offset, bytes }] = record.extents;
    const whole = record.extents.length === 1 && offset % RECORD_ALIGNMENT === 0 && bytes % RECORD_ALIGNMENT === 0;
    if (whole && record.sha256 !== null && record.packs.length === 0) continue;
    throw new ConvertError('SELF_CHECK_FAILED', `${plan.destination}: ${record.name} is not one aligned record`, {
      hint: 'this is a bug: please report it with the command',
      details: { record: record.name },
    });
  }
}
