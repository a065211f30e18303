import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyPack, temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { decodeRow } from '../quant/decode.ts';
import { layoutBytes } from '../quant/layouts.ts';
import { resolveExpert, resolveMatrix, resolveVector } from '../quant/resolve.ts';
import { convertCheckpoint, planConversion } from './convert.ts';
import { encodeRows } from './encode.ts';
import { LOCK_FILE } from './lock.ts';
import { STATE_FILE } from './state.ts';
import type { ConvertOptions } from './types.ts';

const oracles = join(import.meta.dirname, '../../test/oracles');
const olmoe = join(oracles, 'olmoe');
const SHAPE = { hiddenSize: 96, expertWidth: 40 };

type LocalOptions = ConvertOptions & { source: string };

function optionsFor(source: string, more: Partial<LocalOptions> = {}): LocalOptions {
  return { source, destination: join(temporaryDirectory(), 'out'), experts: 'q4g64', dense: 'q8', ...more };
}

function namesOf(layer: number, expert: number) {
  const prefix = `model.layers.${layer}.mlp.experts.${expert}`;
  const [gate, up, down] = ['gate', 'up', 'down'].map(role => `${prefix}.${role}_proj.weight`);
  const merged = { weights: `${prefix}.merged_weight`, scales: `${prefix}.qs` };
  const forms = [{ gate: { name: gate }, up: { name: up }, down: { name: down } }];
  return { layer, expert, gate, up, down, record: `${prefix}.record`, merged, forms };
}

function tensorBytes(checkpoint: Checkpoint, name: string): Uint8Array {
  const { file, offset, bytes } = checkpoint.tensors.get(name)!;
  return new Uint8Array(fs.readFileSync(checkpoint.files[file].path)).slice(offset, offset + bytes);
}

/** float32 values of a BF16 tensor. */
function bfloats(checkpoint: Checkpoint, name: string): Float32Array {
  const bits = new Uint16Array(tensorBytes(checkpoint, name).buffer);
  return new Float32Array(Uint32Array.from(bits, b => b << 16).buffer);
}

function flipByte(path: string, at: number): void {
  const bytes = fs.readFileSync(path);
  bytes[at] ^= 1;
  fs.writeFileSync(path, bytes);
}

/** Name -> hash of every file of a directory. */
function hashes(directory: string): Record<string, string> {
  const entries = fs.readdirSync(directory).sort();
  return Object.fromEntries(
    entries.map(name => [
      name,
      createHash('sha256')
        .update(fs.readFileSync(join(directory, name)))
        .digest('hex'),
    ]),
  );
}

describe('the container', () => {
  test.each([
    ['q4g64', 'q8'],
    ['q8', 'bf16'],
    ['bf16', 'bf16'],
  ] as const)('experts %s, dense %s: every weight is the encoded weight of the source', async (experts, dense) => {
    const options = optionsFor(olmoe, { experts, dense });
    await convertCheckpoint(options);
    const source = openCheckpoint(olmoe);
    const result = openCheckpoint(options.destination);
    const layout = ({ q4g64: 'q4g64', q8: 'q8g64', bf16: 'bf16' } as const)[experts];
    for (let layer = 0; layer < 3; layer++) {
      for (const expert of [0, 7, 15]) {
        const names = namesOf(layer, expert);
        const record = resolveExpert(result, names, SHAPE);
        const tensor = result.tensors.get(names.record)!;
        const bytes = tensorBytes(result, names.record);
        expect([tensor.offset % 4096, tensor.bytes % 4096]).toEqual([0, 0]);
        expect(record.sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
        let end = 0;
        for (const [i, name] of [names.gate, names.up, names.down].entries()) {
          const { rows, columns, source: at } = record.parts[i];
          expect(at).toEqual({ extent: 0, offset: end });
          const expected = encodeRows(layout, bfloats(source, name), rows, columns);
          expect(bytes.subarray(end, end + expected.length)).toEqual(expected);
          if (experts === 'bf16') expect(expected).toEqual(tensorBytes(source, name));
          end += expected.length;
        }
        expect(bytes.subarray(end).every(byte => byte === 0)).toBe(true);
      }
    }
    const q = resolveMatrix(result, 'model.layers.1.self_attn.q_proj.weight', 96, 96);
    const encoded = dense === 'q8' ? 'q8g64' : 'bf16';
    expect(q.parts[0].encoding).toBe(encoded);
    expect(tensorBytes(result, q.name)).toEqual(encodeRows(encoded, bfloats(source, q.name), 96, 96));
  });

  test('router and norms are float32, small files come along, hashes cover every tensor', async () => {
    const options = optionsFor(olmoe);
    const { plan } = await convertCheckpoint(options);
    const source = openCheckpoint(olmoe);
    const result = openCheckpoint(options.destination);
    for (const name of [
      'model.layers.2.mlp.gate.weight',
      'model.norm.weight',
      'model.layers.0.self_attn.k_norm.weight',
    ]) {
      expect(result.tensors.get(name)?.dtype).toBe('F32');
      expect(result.tensors.get(name)?.shape).toEqual(source.tensors.get(name)?.shape);
      expect(new Float32Array(tensorBytes(result, name).buffer)).toEqual(bfloats(source, name));
    }
    expect(resolveVector(result, 'model.norm.weight', 96).parts[0].encoding).toBe('f32');
    for (const name of ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json']) {
      expect(fs.readFileSync(join(options.destination, name))).toEqual(fs.readFileSync(join(olmoe, name)));
    }
    expect(plan.absent).toEqual(['special_tokens_map.json']);
    for (const [name] of result.tensors) {
      const hash = createHash('sha256').update(tensorBytes(result, name)).digest('hex');
      expect(result.container?.sha256.get(name)).toBe(hash);
    }
    expect(fs.readdirSync(options.destination).filter(name => /partial|convert/.test(name))).toEqual([]);
  });

  test('is the same bytes wherever source and destination lie', async () => {
    const first = optionsFor(olmoe);
    const second = optionsFor(copyPack());
    await convertCheckpoint(first);
    await convertCheckpoint(second);
    expect(hashes(second.destination)).toEqual(hashes(first.destination));
  });

  test('of a container with the same parameters is the same weights', async () => {
    const first = optionsFor(olmoe);
    await convertCheckpoint(first);
    const second = optionsFor(first.destination);
    await convertCheckpoint(second);
    const [a, b] = [first, second].map(each => openCheckpoint(each.destination).container?.sha256);
    expect(b).toEqual(a);
  });

  test.each([
    ['olmoe-colibri', SHAPE, /already quantised in the source.*experts \(int8-row -> q8g64\)/],
    [
      'olmoe-int4g64',
      { hiddenSize: 128, expertWidth: 64 },
      /already quantised in the source.*attention \(int8-row -> q8g64\)/,
    ],
  ])('of the C engine container %s keeps its weights within half a step', async (pack, shape, note) => {
    const options = optionsFor(join(oracles, pack), { experts: 'q8', dense: 'q8' });
    const { plan } = await convertCheckpoint(options);
    expect(plan.notes.join('\n')).toMatch(note);
    const [source, result] = [openCheckpoint(options.source), openCheckpoint(options.destination)];
    const record = resolveExpert(result, namesOf(1, 5), shape);
    const bytes = tensorBytes(result, namesOf(1, 5).record);
    const { rows, columns } = record.parts[0];
    const row = new Float32Array(columns);
    for (let r = 0; r < rows; r++) {
      decodeRow('q8g64', bytes, rows, columns, r, row);
      const original = sourceRow(source, pack, r, columns);
      const max = Math.max(...original.map(Math.abs));
      for (let c = 0; c < columns; c++) expect(Math.abs(row[c] - original[c])).toBeLessThanOrEqual(max * 0.0085);
    }
  });

  function sourceRow(source: Checkpoint, pack: string, row: number, columns: number): number[] {
    const names = namesOf(1, 5);
    if (pack === 'olmoe-colibri') {
      const scales = new Float32Array(tensorBytes(source, names.merged.scales).buffer);
      const codes = new Int8Array(tensorBytes(source, names.merged.weights).buffer);
      return Array.from({ length: columns }, (_, c) => codes[row * columns + c] * scales[row]);
    }
    const scales = new Float32Array(tensorBytes(source, `${names.gate}.qs`).buffer);
    const codes = tensorBytes(source, names.gate);
    return Array.from({ length: columns }, (_, c) => {
      const byte = codes[(row * columns + c) >> 1];
      return ((c & 1 ? byte >> 4 : byte & 15) - 8) * scales[row * (columns / 64) + (c >> 6)];
    });
  }
});

describe('the plan', () => {
  test('names every class with encodings, bits and sizes, and writes nothing', () => {
    const options = optionsFor(olmoe);
    const plan = planConversion(options);
    const classes = Object.fromEntries(plan.classes.map(each => [each.role, each]));
    expect(classes.experts).toMatchObject({
      tensors: 48,
      weights: 552960,
      from: 'bf16',
      to: 'q4g64',
      bytes: 48 * 12288,
    });
    expect(classes.embedding).toMatchObject({ from: 'bf16', to: 'q8g64', bytes: layoutBytes('q8g64', 512, 96) });
    expect(classes.router).toMatchObject({ to: 'f32', bitsPerWeight: 32 });
    expect(plan.totalBytes).toBe(plan.shards.reduce((sum, shard) => sum + shard.bytes, 0));
    expect(fs.existsSync(options.destination)).toBe(false);
  });

  test('sizes are those of the files; layers stay together; shards are bounded', async () => {
    const options = optionsFor(olmoe, { shardBytes: 200_000 });
    const { plan } = await convertCheckpoint(options);
    expect(plan.shards.length).toBeGreaterThan(3);
    for (const { name, bytes, tensors } of plan.shards) {
      expect(fs.statSync(join(options.destination, name)).size).toBe(bytes);
      expect(tensors.reduce((sum, tensor) => sum + tensor.bytes, 0)).toBeLessThanOrEqual(200_000);
      expect(new Set(tensors.map(tensor => tensor.layer)).size).toBeLessThanOrEqual(2);
    }
    expect(planConversion(optionsFor(olmoe, { shardBytes: 50_000 })).shards.length).toBeGreaterThan(8);
  });
});

describe('interrupted', () => {
  const shardBytes = 150_000;

  test('by SIGKILL at any point, the next run ends in the same bytes', async () => {
    const straight = optionsFor(olmoe, { shardBytes });
    let reports = 0;
    await convertCheckpoint({ ...straight, onProgress: () => reports++ });
    const expected = hashes(straight.destination);
    const child = join(import.meta.dirname, '../../test/support/convert-and-die.ts');
    for (const share of [0, 0.3, 0.7, 0.999, 1]) {
      const { onProgress, ...options } = optionsFor(olmoe, { shardBytes });
      const dieAt = Math.max(1, Math.floor(reports * share));
      const died = spawnSync(process.execPath, [child, JSON.stringify(options), String(dieAt)], { encoding: 'utf8' });
      expect([died.signal, died.stderr]).toEqual(['SIGKILL', '']);
      for (const left of [STATE_FILE, LOCK_FILE]) {
        expect(fs.existsSync(join(options.destination, left))).toBe(true);
      }
      const { kept, written } = await convertCheckpoint(options);
      if (share === 0.7) expect(kept.length).toBeGreaterThan(0);
      if (share === 1) expect(written).toEqual([]);
      expect(hashes(options.destination)).toEqual(expected);
    }
  });

  test('by a signal, it says how to go on', async () => {
    const stop = new AbortController();
    let reports = 0;
    const options = optionsFor(olmoe, { shardBytes });
    const onProgress = (): void => {
      if (++reports === 40) stop.abort();
    };
    const stopped = convertCheckpoint({ ...options, signal: stop.signal, onProgress });
    await expect(stopped).rejects.toMatchObject({ code: 'CONVERT_STOPPED', hint: expect.stringContaining('again') });
    await convertCheckpoint(options);
    expect(fs.existsSync(join(options.destination, STATE_FILE))).toBe(false);
  });

  test('progress reaches the total and never runs backwards', async () => {
    const seen: number[] = [];
    const options = optionsFor(olmoe, { shardBytes });
    await convertCheckpoint({ ...options, onProgress: ({ doneBytes }) => seen.push(doneBytes) });
    expect(seen.at(-1)).toBe(planConversion({ ...options, destination: `${options.destination}2` }).totalBytes);
    expect(seen.every((bytes, i) => i === 0 || bytes >= seen[i - 1])).toBe(true);
  });

  /** A conversion stopped after some shards. */
  async function halfDone(): Promise<{ options: ConvertOptions; shards: string[] }> {
    const options = optionsFor(copyPack(), { shardBytes });
    const stop = new AbortController();
    const onProgress = ({ shard }: { shard: string }): void => {
      if (shard.startsWith('model-00004')) stop.abort();
    };
    await expect(convertCheckpoint({ ...options, signal: stop.signal, onProgress })).rejects.toThrow(/stopped/);
    const shards = fs.readdirSync(options.destination).filter(name => name.endsWith('.safetensors'));
    expect(shards).toHaveLength(3);
    return { options, shards };
  }

  test.each([
    ['damaged', (path: string) => flipByte(path, fs.statSync(path).size - 100)],
    ['with another header', (path: string) => flipByte(path, 20)],
    ['cut', (path: string) => fs.truncateSync(path, 5000)],
    ['removed', (path: string) => fs.rmSync(path)],
  ])('a finished shard that was %s is written again', async (_, damage) => {
    const straight = optionsFor(olmoe, { shardBytes });
    await convertCheckpoint(straight);
    const { options, shards } = await halfDone();
    damage(join(options.destination, shards[1]));
    fs.writeFileSync(join(options.destination, `${shards[0]}.partial`), 'left over');
    const { kept, written } = await convertCheckpoint(options);
    expect(kept).toEqual([shards[0], shards[2]]);
    expect(written[0]).toBe(shards[1]);
    expect(hashes(options.destination)).toEqual(hashes(straight.destination));
  });

  test('other parameters, another source or strange files are refused', async () => {
    const { options } = await halfDone();
    const rejects = (more: Partial<ConvertOptions>, code: string, message: RegExp) =>
      expect(() => planConversion({ ...options, ...more })).toThrow(
        expect.objectContaining({ code, message: expect.stringMatching(message) }),
      );
    rejects({ experts: 'q8' }, 'CONVERT_MIXED', /experts was q4g64, is now q8/);
    rejects({ dense: 'bf16' }, 'CONVERT_MIXED', /dense was q8, is now bf16/);
    rejects({ shardBytes: 10_000 }, 'CONVERT_MIXED', /shardBytes was 150000, is now 10000/);
    rejects({ source: olmoe }, 'CONVERT_MIXED', /source files are not the same/);
    fs.writeFileSync(join(options.destination, 'notes.txt'), '');
    rejects({}, 'DESTINATION_NOT_EMPTY', /already holds "notes.txt"/);
    fs.rmSync(join(options.destination, 'notes.txt'));
    fs.writeFileSync(join(options.destination, STATE_FILE), '{"version": 9}');
    rejects({}, 'BAD_CONVERT_STATE', /damaged or of another version/);
  });

  test('free space is asked only for what is left', async () => {
    const { options } = await halfDone();
    const whole = planConversion({ ...options, destination: `${options.destination}2` });
    const rest = planConversion(options);
    const finished = rest.shards.slice(0, 3).reduce((sum, shard) => sum + shard.bytes, 0);
    expect(rest.neededBytes).toBe(whole.neededBytes - finished);
  });
});
