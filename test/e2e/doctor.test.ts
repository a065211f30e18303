/** Every check of coli doctor against a real broken thing: what it finds, with which code, and that the others go on. */

import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { CHECKS } from '../../src/doctor/checks.ts';
import { DoctorReportJson, doctorJson } from '../../src/doctor/report.ts';
import { type DoctorReport, runDoctor } from '../../src/doctor/run.ts';
import type { CheckResult } from '../../src/doctor/types.ts';
import { packAsGguf } from '../support/gguf-packs.ts';
import { writeGguf } from '../support/gguf-writer.ts';
import { LoosePack } from '../support/loose-pack.ts';
import { NANO } from '../support/nano.ts';
import { copyOf, damage, examine as doctor, editJson, find, OLMOE, temporary } from './doctor-support.ts';

const SHARD = 'model-00002-of-00003.safetensors';
const BF16_NAN = [0xc0, 0x7f];
/** Codes of the first tile of an expert in q4g64; its 16 scales follow. */
const TILE_CODE_BYTES = 512;

/** Ids with this status. */
function withStatus({ checks }: DoctorReport, status: CheckResult['status']): string[] {
  return checks.filter(check => check.status === status).map(({ id }) => id);
}

describe('a sound model', () => {
  test('passes everything, --deep included, and gives the documented object', async () => {
    const report = await doctor(NANO, { deep: true, quick: false }, CHECKS);
    expect(withStatus(report, 'fail')).toEqual([]);
    expect(report.checks.map(({ id }) => id)).toEqual(CHECKS.map(({ id }) => id));
    expect(new Set(CHECKS.map(({ id }) => id)).size).toBe(CHECKS.length);
    for (const id of ['model.hashes', 'model.scales', 'model.tokenizer', 'model.template', 'memory.plan']) {
      expect(find(report, id)).toMatchObject({ status: 'pass', fix: null });
    }
    expect(find(report, 'model.hashes').details).toMatchObject({ hashes: 249, checked: 249 });
    expect(find(report, 'storage.speed').details.reads).toBeGreaterThan(0);
    const json = JSON.parse(JSON.stringify(doctorJson('1.2.3', report)));
    expect(DoctorReportJson.parse(json)).toEqual(json);
    expect(json).toMatchObject({ version: 1, colibri: '1.2.3', mode: 'deep', model: NANO, interrupted: false });
  });

  test('as a GGUF file too, which has no index and no hashes', async () => {
    const file = writeGguf(path.join(temporary(), 'm ö.gguf'), packAsGguf(OLMOE, 'olmoe'));
    const report = await doctor(file, { deep: true });
    expect(withStatus(report, 'fail')).toEqual([]);
    expect(find(report, 'model.index').status).toBe('skip');
    expect(find(report, 'model.hashes').status).toBe('skip');
    expect(find(report, 'model.scales').status).toBe('pass');
    fs.truncateSync(file, fs.statSync(file).size - 1000);
    expect(find(await doctor(file), 'model.shards')).toMatchObject({
      status: 'fail',
      details: { code: expect.any(String) },
    });
  });

  test('the documentation has every id and no other', () => {
    const rows = fs.readFileSync('docs/doctor.md', 'utf8').matchAll(/^\| `([a-z]+\.[a-z-]+)` \|/gm);
    expect([...rows].map(([, id]) => id).sort()).toEqual(CHECKS.map(({ id }) => id).sort());
  });

  test('every check that needs another stands behind it', () => {
    const seen = new Set<string>();
    for (const { id, needs } of CHECKS) {
      expect(
        [...needs].filter(need => !seen.has(need)),
        id,
      ).toEqual([]);
      seen.add(id);
    }
  });
});

describe('model.path and model.links', () => {
  test.each([
    ['nothing there', '/nowhere/at/all', 'MODEL_NOT_FOUND'],
    ['a file', path.join(OLMOE, 'config.json'), 'MODEL_NOT_A_DIRECTORY'],
  ])('%s: all checks of the model are left out, those of the machine are not', async (_, model, code) => {
    const report = await doctor(model);
    expect(find(report, 'model.path')).toMatchObject({ status: 'fail', details: { code } });
    expect(report.status).toBe('error');
    expect(withStatus(report, 'fail')).toEqual(['model.path']);
    expect(find(report, 'model.tensors')).toMatchObject({ status: 'skip', summary: 'needs model.family' });
    expect(find(report, 'node.version').status).toBe('pass');
  });

  test('a name that cannot be found is a finding, not the end', async () => {
    const locate = () => {
      throw new Error('no such model');
    };
    const report = await runDoctor({ locate, quick: true });
    expect(find(report, 'model.path')).toMatchObject({ status: 'fail', summary: 'no such model' });
    expect(report.model).toBeNull();
  });

  test('links are followed; one that leads nowhere is named, and matters where the file is needed', async () => {
    const directory = copyOf(OLMOE);
    const link = path.join(temporary(), 'verweis ü');
    fs.symlinkSync(directory, link);
    expect(find(await doctor(link), 'model.path')).toMatchObject({ status: 'pass', details: { real_path: directory } });

    fs.symlinkSync('/nowhere', path.join(directory, 'README.md'));
    expect(find(await doctor(directory), 'model.links').status).toBe('warn');
    fs.rmSync(path.join(directory, 'tokenizer.json'));
    fs.symlinkSync('tokenizer.json', path.join(directory, 'tokenizer.json'));
    const report = await doctor(directory);
    expect(find(report, 'model.links')).toMatchObject({
      status: 'fail',
      details: { dangling: ['README.md', 'tokenizer.json'] },
    });
    expect(find(report, 'model.tokenizer').status).toBe('fail');
    fs.symlinkSync('round', path.join(directory, '..', 'round'));
    expect(find(await doctor(path.join(directory, '..', 'round')), 'model.path').status).toBe('fail');
    fs.symlinkSync('/nowhere/else', path.join(directory, '..', 'gone'));
    expect(find(await doctor(path.join(directory, '..', 'gone')), 'model.path').status).toBe('fail');
  });
});

describe('config, index and shards', () => {
  test('a config that is no JSON, and a family that is not known', async () => {
    const directory = copyOf(OLMOE);
    editJson(directory, 'config.json', config => Object.assign(config, { model_type: 'gpt-7' }));
    const unknown = await doctor(directory);
    expect(find(unknown, 'model.family')).toMatchObject({ status: 'fail', details: { code: 'UNKNOWN_MODEL_TYPE' } });
    expect(find(unknown, 'model.shards').status).toBe('pass');
    fs.writeFileSync(path.join(directory, 'config.json'), '{"model_type": ');
    const report = await doctor(directory);
    expect(find(report, 'model.config')).toMatchObject({ status: 'fail', details: { code: 'JSON_INVALID' } });
    expect(find(report, 'model.family')).toMatchObject({ status: 'skip', details: { needs: 'model.config' } });
    expect(find(report, 'model.tokenizer').status).toBe('pass');
  });

  test('an unfinished conversion is told as one', async () => {
    const directory = temporary();
    fs.writeFileSync(path.join(directory, 'coli.convert.json'), '{}');
    const report = await doctor(directory);
    expect(find(report, 'model.config')).toMatchObject({ status: 'fail', details: { code: 'CONVERSION_UNFINISHED' } });
    expect(find(report, 'model.leftovers').status).toBe('warn');
  });

  test('a config that disagrees with the tensors', async () => {
    const pack = new LoosePack(OLMOE);
    pack.config.num_experts = (pack.config.num_experts as number) + 1;
    const directory = copyOf(OLMOE);
    fs.writeFileSync(path.join(directory, 'config.json'), JSON.stringify(pack.config));
    const report = await doctor(directory);
    expect(find(report, 'model.tensors')).toMatchObject({
      status: 'fail',
      details: { code: expect.stringMatching(/^[A-Z_]+$/) },
    });
    expect(find(report, 'memory.plan')).toMatchObject({ status: 'skip', summary: 'needs model.tensors' });
    expect(find(report, 'model.template').status).toBe('pass');
  });

  test('a missing shard and a cut one are told together, with their names', async () => {
    const directory = copyOf(OLMOE);
    fs.rmSync(path.join(directory, SHARD));
    const missing = await doctor(directory);
    expect(find(missing, 'model.shards')).toMatchObject({
      status: 'fail',
      details: { code: 'SHARD_MISSING', missing: [SHARD] },
    });
    expect(find(missing, 'model.index').status).toBe('pass');
    fs.truncateSync(path.join(directory, 'model-00003-of-00003.safetensors'), 5000);
    const { status, summary, details } = find(await doctor(directory), 'model.shards');
    expect({ status, code: details.code }).toEqual({ status: 'fail', code: 'SHARD_MISSING' });
    expect(summary).toContain('2 files cannot be used');
    expect(summary).toContain(SHARD);
    expect(summary).toContain('model-00003-of-00003.safetensors');
  });

  test('a shard that is one byte short', async () => {
    const directory = copyOf(OLMOE);
    const file = path.join(directory, SHARD);
    fs.truncateSync(file, fs.statSync(file).size - 1);
    const { status, summary } = find(await doctor(directory), 'model.shards');
    expect(status).toBe('fail');
    expect(summary).toContain(SHARD);
  });

  test('an index that leads out of the directory, and one that disagrees with the headers', async () => {
    const directory = copyOf(OLMOE);
    const name = 'model.safetensors.index.json';
    editJson(directory, name, ({ weight_map }) => {
      weight_map['model.norm.weight'] = weight_map['model.norm.weight'].replace(/^model-0000./, 'model-00002');
      weight_map['lm_head.weight'] = 'model-00002-of-00003.safetensors';
      weight_map['model.embed_tokens.weight'] = 'model-00002-of-00003.safetensors';
    });
    expect(find(await doctor(directory), 'model.tensors')).toMatchObject({
      status: 'fail',
      details: { code: 'TENSOR_NOT_IN_SHARD' },
    });
    editJson(directory, name, ({ weight_map }) => Object.assign(weight_map, { 'lm_head.weight': '../x.safetensors' }));
    expect(find(await doctor(directory), 'model.index')).toMatchObject({
      status: 'fail',
      details: { code: 'BAD_SHARD_INDEX' },
    });
  });

  test('weights that belong to nothing, and what downloads left half-finished', async () => {
    const directory = copyOf(OLMOE);
    fs.copyFileSync(path.join(directory, SHARD), path.join(directory, 'other.safetensors'));
    fs.writeFileSync(path.join(directory, 'x.safetensors.coli.incomplete'), 'abc');
    const report = await doctor(directory);
    expect(find(report, 'model.unused')).toMatchObject({
      status: 'warn',
      details: { files: ['other.safetensors'] },
    });
    expect(find(report, 'model.leftovers')).toMatchObject({ status: 'warn', details: { bytes: 3 } });
    expect(report.status).toBe('warning');
  });
});

describe('--deep', () => {
  const EXPERT = 'model.layers.2.mlp.experts.5.record';

  test('a scale that is no number: layer, expert, part, row and tensor; its hash is wrong too', async () => {
    const directory = copyOf(NANO);
    damage(directory, EXPERT, TILE_CODE_BYTES + 2 * 3, BF16_NAN);
    const standard = await doctor(directory);
    expect(standard.checks.some(({ id }) => id === 'model.scales')).toBe(false);
    const report = await doctor(directory, { deep: true });
    expect(find(report, 'model.scales')).toMatchObject({
      status: 'fail',
      summary: 'layer 2 expert 5 gate: NaN in row 3',
      details: { troubles: [{ layer: 2, expert: 5, part: 'gate', row: 3, value: 'NaN', tensors: [EXPERT] }] },
    });
    expect(find(report, 'model.hashes')).toMatchObject({ status: 'fail', details: { wrong: [{ name: EXPERT }] } });
  });

  test('an infinite number in a norm, where nothing states hashes', async () => {
    const pack = new LoosePack(OLMOE);
    const norm = pack.get('model.layers.1.input_layernorm.weight');
    const bits = { BF16: [0x80, 0x7f], F16: [0x00, 0x7c], F32: [0, 0, 0x80, 0x7f] }[norm.dtype as string]!;
    const directory = copyOf(OLMOE);
    damage(directory, 'model.layers.1.input_layernorm.weight', 0, bits);
    const report = await doctor(directory, { deep: true });
    expect(find(report, 'model.hashes').status).toBe('skip');
    expect(find(report, 'model.scales')).toMatchObject({
      status: 'fail',
      details: {
        troubles: [{ layer: 1, expert: null, value: 'Infinity', tensors: ['model.layers.1.input_layernorm.weight'] }],
      },
    });
  });

  test('--verify, where nothing states hashes', async () => {
    expect(find(await doctor(OLMOE, { verify: true }), 'model.verify')).toMatchObject({
      status: 'fail',
      details: { code: 'NO_HASHES' },
    });
    expect(find(await doctor(NANO, { verify: true }), 'model.verify').status).toBe('pass');
  });

  test('a wrong hash', async () => {
    const directory = copyOf(NANO);
    editJson(directory, 'coli.index.json', index => {
      index.sha256['lm_head.weight'] = 'a'.repeat(64);
    });
    const report = await doctor(directory, { deep: true });
    expect(find(report, 'model.hashes').summary).toBe(
      '1 of 249 differ from the hashes of the container: "lm_head.weight"',
    );
    expect(find(report, 'model.scales').status).toBe('pass');
  });

  test('interrupted, it tells what is known until then', async () => {
    const directory = copyOf(NANO);
    damage(directory, 'model.layers.0.mlp.experts.0.record', TILE_CODE_BYTES, BF16_NAN);
    const { signal, stop } = stopper();
    let seen = 0;
    const report = await doctor(directory, {
      deep: true,
      signal,
      onProgress: ({ id, doneBytes, totalBytes }) => {
        expect(doneBytes).toBeLessThanOrEqual(totalBytes);
        if (id === 'model.scales' && ++seen === 200) stop();
      },
    });
    expect(report.interrupted).toBe(true);
    expect(find(report, 'model.hashes').status).toBe('fail');
    const { status, summary, details } = find(report, 'model.scales');
    expect(status).toBe('fail');
    expect(summary).toMatch(/^interrupted after .*: layer 0 expert 0 gate: NaN in row 0$/);
    expect(details.checked).toBe(200);
  });

  test('interrupted at once, nothing is called right', async () => {
    const { signal, stop } = stopper();
    const report = await doctor(NANO, { deep: true, signal, onProgress: stop });
    expect(find(report, 'model.hashes')).toMatchObject({
      status: 'skip',
      summary: expect.stringMatching(/^interrupted/),
    });
    expect(find(report, 'model.scales')).toMatchObject({ status: 'skip', summary: 'interrupted before it began' });
  });
});

function stopper() {
  const controller = new AbortController();
  return { signal: controller.signal, stop: () => controller.abort() };
}
