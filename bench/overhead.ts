/**
 * `overhead`: what this Node needs besides the arenas. Each case runs as a process of its own; the difference to the
 * smallest one, divided by what was added, is the cost of a lane, a reader, a byte of tokenizer.json, a tensor. The
 * constants of src/engine/overhead.ts come from here; a case above 100 % of its plan proves one of them wrong.
 */

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MIB } from '../src/common/units.ts';
import type { EngineOptions } from '../src/engine/api.ts';
import { SafetensorsWriter } from '../src/formats/safetensors-writer.ts';
import type { ProbeRequest, ProbeResult } from './overhead-probe.ts';
import { type Cut, PUBLISHED } from './published.ts';
import { machineLine } from './subject.ts';
import { type SynthShape, writeSynth } from './synth.ts';
import { writeFamily } from './synth-family.ts';

const PROBE = fileURLToPath(new URL('./overhead-probe.ts', import.meta.url));
const NANO_TOKENIZER = new URL('../models/nano/', import.meta.url).pathname;

const SMALL: SynthShape = {
  layers: 2,
  experts: 16,
  topK: 2,
  hiddenSize: 64,
  expertWidth: 64,
  heads: 2,
  vocabSize: 512,
};
const MANY_RECORDS: SynthShape = { ...SMALL, layers: 32, experts: 256 };
/** Layers and experts of a checkpoint with one BF16 tensor for each of gate, up and down. */
const UNPACKED = { layers: 24, experts: 256 };
const BIG_VOCABULARY = 150_000;
const ADDED = 6;

type Case = { name: string; model: string; unit: string; count: number; options?: Partial<EngineOptions> } & Partial<
  Pick<ProbeRequest, 'promptTokens' | 'maxTokens' | 'requests'>
>;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      runs: { type: 'string', default: '3' },
      dist: { type: 'boolean', default: false },
      cold: { type: 'boolean', default: false },
      only: { type: 'string' },
    },
  });
  const directory = mkdtempSync(join(tmpdir(), 'coli-overhead-'));
  try {
    console.log(`${machineLine()}; ${values.dist ? 'compiled package' : 'sources'}, ${cacheWord(values)}`);
    const measure = prober(directory, Number(values.runs), values);
    const base = measure({ name: 'base', model: small(directory), unit: '', count: 0 });
    report('base', base);
    for (const one of cases(directory, values.only)) {
      const result = measure(one);
      const each = (result.overheadBytes - base.overheadBytes) / one.count;
      report(
        one.name,
        result,
        `${each >= MIB ? `${(each / MIB).toFixed(1)} MiB` : `${Math.round(each)} bytes`} per ${one.unit}`,
      );
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function cacheWord({ cold }: { cold: boolean }): string {
  return cold ? 'no compile cache' : 'compile cache filled';
}

function report(name: string, { overheadBytes, maxRssBytes, plannedBytes }: ProbeResult, each = ''): void {
  const mib = (bytes: number) => `${(bytes / MIB).toFixed(1)} MiB`.padStart(10);
  const share = `${((overheadBytes / plannedBytes) * 100).toFixed(0)} % of plan`;
  console.log(`${name.padEnd(26)} ${mib(overheadBytes)} besides arenas (VmHWM ${mib(maxRssBytes)}), ${share}  ${each}`);
}

/** Runs a case several times and takes the highest: a bound is wanted, not a mean. */
function prober(directory: string, runs: number, flags: { dist: boolean; cold: boolean }): (one: Case) => ProbeResult {
  const cache = flags.cold ? { NODE_DISABLE_COMPILE_CACHE: '1' } : { NODE_COMPILE_CACHE: join(directory, 'cache') };
  return ({ model, options, promptTokens = 64, maxTokens = 64, requests = 2 }) => {
    const request: ProbeRequest = {
      options: { model, ram: 8 * 2 ** 30, threads: 1, readers: 1, context: 512, chunk: 64, ...options },
      code: flags.dist ? 'dist' : 'src',
      promptTokens,
      maxTokens,
      requests,
    };
    const once = (): ProbeResult =>
      JSON.parse(
        execFileSync(process.execPath, [PROBE, JSON.stringify(request)], {
          env: { ...process.env, ...cache },
          encoding: 'utf8',
        }),
      );
    if (!flags.cold) once(); // fills the cache
    return Array.from({ length: runs }, once).reduce((a, b) => (a.overheadBytes > b.overheadBytes ? a : b));
  };
}

function small(directory: string): string {
  const model = join(directory, 'small');
  writeSynth(model, SMALL);
  return model;
}

function* cases(directory: string, only: string | undefined): Generator<Case> {
  const model = join(directory, 'small');
  const wanted = (name: string) => only === undefined || name.includes(only);
  const plain: Case[] = [
    { name: '4 more lanes', model, unit: 'lane', count: ADDED - 2, options: { threads: ADDED - 1 } },
    { name: '4 more lanes, reference', model, unit: 'lane', count: 4, options: { threads: 5, kernels: 'reference' } },
    { name: '6 more readers', model, unit: 'reader', count: ADDED, options: { readers: ADDED + 1 } },
    {
      name: '6 more readers, verify',
      model,
      unit: 'reader',
      count: ADDED,
      options: { readers: ADDED + 1, verify: true },
    },
    { name: '20 requests of 400 tokens', model, unit: 'request', count: 18, requests: 20, maxTokens: 400 },
    { name: '400 short requests', model, unit: 'request', count: 398, requests: 400, maxTokens: 2, promptTokens: 8 },
    {
      name: 'context of 4096, used',
      model,
      unit: 'token',
      count: 4096,
      options: { context: 4096, chunk: 64 },
      promptTokens: 3900,
      maxTokens: 190,
    },
  ];
  yield* plain.filter(one => wanted(one.name));
  if (wanted('tokenizer')) {
    for (const { name, merges, indent } of [
      { name: 'tokenizer, compact', merges: 'strings', indent: 0 },
      { name: 'tokenizer, indented', merges: 'pairs', indent: 2 },
    ] as const) {
      const target = withTokenizer(directory, model, merges, indent);
      const bytes = statSync(join(target, 'tokenizer.json')).size;
      yield { name: `${name}, ${(bytes / 1e6).toFixed(1)} MB`, model: target, unit: 'byte', count: bytes };
    }
  }
  if (wanted('vocabulary')) {
    const wide = join(directory, 'wide');
    writeSynth(wide, { ...SMALL, vocabSize: BIG_VOCABULARY });
    const target = withTokenizer(directory, wide, 'strings', 0);
    const use = { requests: 100, maxTokens: 4, promptTokens: 8 };
    yield { name: 'vocabulary of 150,000', model: target, unit: 'entry', count: BIG_VOCABULARY, ...use };
  }
  if (wanted('records')) {
    const container = join(directory, 'records');
    writeSynth(container, MANY_RECORDS);
    const count = MANY_RECORDS.layers * MANY_RECORDS.experts;
    yield { name: `${count} expert records`, model: container, unit: 'tensor', count };
  }
  if (wanted('tensors')) {
    const { target, count } = writeUnpacked(directory);
    yield { name: `${count} BF16 tensors`, model: target, unit: 'tensor', count };
  }
  if (wanted('joint')) {
    const { target, count } = writeJoint(directory);
    yield { name: `${count} parts of joint tensors`, model: target, unit: 'part', count };
  }
}

/** A copy of a model with a byte-level BPE vocabulary of the size that large models have. */
function withTokenizer(directory: string, model: string, style: 'strings' | 'pairs', indent: number): string {
  const target = mkdtempSync(join(directory, 'tokenizer-'));
  cpSync(model, target, { recursive: true });
  const tokenizer = JSON.parse(readFileSync(join(NANO_TOKENIZER, 'tokenizer.json'), 'utf8'));
  const letters = Object.keys(tokenizer.model.vocab).filter(token => [...token].length === 1);
  const tokens = [...tokenizer.added_tokens.map((token: { content: string }) => token.content), ...letters];
  const first = tokens.length - letters.length;
  const known = new Set(tokens);
  const merges: (string | [string, string])[] = [];
  for (let state = 1; tokens.length < BIG_VOCABULARY; ) {
    const pick = (limit: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return tokens[first + ((state >>> 8) % Math.min(tokens.length - first, limit))];
    };
    const [left, right] = [pick(20_000), pick(2000)];
    const token = left + right;
    if (token.length > 12 || known.has(token)) continue;
    known.add(token);
    tokens.push(token);
    merges.push(style === 'strings' ? `${left} ${right}` : [left, right]);
  }
  tokenizer.model.vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  tokenizer.model.merges = merges;
  writeFileSync(join(target, 'tokenizer.json'), JSON.stringify(tokenizer, null, indent));
  cpSync(join(NANO_TOKENIZER, 'tokenizer_config.json'), join(target, 'tokenizer_config.json'));
  return target;
}

/** A checkpoint whose experts of a layer are two tensors: gate and up joint, and down. Widths are small. */
function writeJoint(directory: string): { target: string; count: number } {
  const target = join(directory, 'joint');
  const published = PUBLISHED['qwen3.6'];
  const { hiddenSize: hidden, expertWidth: width } = SMALL;
  const heads = { num_attention_heads: 2, num_key_value_heads: 2, linear_num_key_heads: 2, linear_num_value_heads: 2 };
  const widths = { hidden_size: hidden, moe_intermediate_size: width, shared_expert_intermediate_size: width };
  const narrow = { ...published, config: (cut: Required<Cut>) => ({ ...published.config(cut), ...heads, ...widths }) };
  writeFamily(target, narrow, 'bf16', { ...UNPACKED, vocab: SMALL.vocabSize });
  return { target, count: UNPACKED.layers * UNPACKED.experts * 3 };
}

/** A checkpoint as published: every expert matrix a BF16 tensor of its own. All weights are zero. */
function writeUnpacked(directory: string): { target: string; count: number } {
  const target = join(directory, 'unpacked');
  mkdirSync(target);
  const { hiddenSize: hidden, expertWidth: width } = SMALL;
  const config = { ...JSON.parse(readFileSync(join(directory, 'small', 'config.json'), 'utf8')) };
  config.num_hidden_layers = UNPACKED.layers;
  config.num_experts = UNPACKED.experts;
  writeFileSync(join(target, 'config.json'), JSON.stringify(config));
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    cpSync(join(directory, 'small', file), join(target, file));

  const shapes: [string, number[]][] = [
    ['model.embed_tokens.weight', [SMALL.vocabSize, hidden]],
    ['lm_head.weight', [SMALL.vocabSize, hidden]],
    ['model.norm.weight', [hidden]],
  ];
  for (let layer = 0; layer < UNPACKED.layers; layer++) {
    const prefix = `model.layers.${layer}`;
    for (const name of ['q', 'k', 'v', 'o']) shapes.push([`${prefix}.self_attn.${name}_proj.weight`, [hidden, hidden]]);
    for (const name of ['input_layernorm', 'post_attention_layernorm', 'self_attn.q_norm', 'self_attn.k_norm'])
      shapes.push([`${prefix}.${name}.weight`, [hidden]]);
    shapes.push([`${prefix}.mlp.gate.weight`, [UNPACKED.experts, hidden]]);
    for (let expert = 0; expert < UNPACKED.experts; expert++) {
      const at = `${prefix}.mlp.experts.${expert}`;
      shapes.push([`${at}.gate_proj.weight`, [width, hidden]], [`${at}.up_proj.weight`, [width, hidden]]);
      shapes.push([`${at}.down_proj.weight`, [hidden, width]]);
    }
  }
  const tensors = shapes.map(([name, shape]) => ({ name, dtype: 'BF16' as const, shape }));
  const writer = new SafetensorsWriter(join(target, 'model.safetensors'), tensors);
  for (const { shape } of tensors) writer.append(new Uint8Array(shape.reduce((size, n) => size * n, 2)));
  writer.close();
  return { target, count: tensors.length };
}
