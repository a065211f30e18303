/** A GGUF file as the checkpoint that a family knows: tensors under their Hugging Face names, metadata as a config.json. */

import { ConfigError, ModelFileError } from '../common/errors.ts';
import type { Checkpoint, TensorInfo } from '../formats/checkpoint-types.ts';
import { quote } from '../formats/files.ts';
import type { GgufModel } from '../formats/gguf-files.ts';
import { isGgufArray, readGgufStrings } from '../formats/gguf-metadata.ts';
import { GGUF_ARCHITECTURES, REFUSED_ARCHITECTURES } from './gguf-architectures.ts';
import { GgufKeys } from './gguf-keys.ts';
import type { GgufArchitecture } from './gguf-parts.ts';

const OUTER: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'output_norm.weight': 'model.norm.weight',
  'output.weight': 'lm_head.weight',
};
/** One matrix per head in the file, all heads in one where they are used. */
const PER_HEAD = /\.kv_b_proj\.(?:keys|values)$/;
const BLOCK = /^blk\.(0|[1-9]\d{0,4})\.(.+)$/;

/** Settings for choosing tokens that publishers recommend, by their names in generation_config.json. */
const SAMPLING: Readonly<Record<string, string>> = {
  temperature: 'general.sampling.temp',
  top_k: 'general.sampling.top_k',
  top_p: 'general.sampling.top_p',
  min_p: 'general.sampling.min_p',
  repetition_penalty: 'general.sampling.penalty_repeat',
};

/** Throws ConfigError for an architecture that cannot be run, ModelFileError for metadata that cannot be used. */
export function checkpointOfGguf(model: GgufModel): Checkpoint {
  const general = new GgufKeys(model, '');
  const type = general.text('general.type') ?? 'model';
  if (type !== 'model')
    general.refuse('GGUF_NOT_A_MODEL', `is of the type ${quote(type)}, not a model`, 'give the model');
  const name = general.text('general.architecture');
  const architecture = architectureOf(model, name);
  const keys = new GgufKeys(model, name!);
  const config = { ...architecture.config(keys), eos_token_id: stopIds(keys, architecture) };
  return {
    directory: model.path,
    config,
    generationConfig: samplingOf(keys),
    files: model.files,
    tensors: renamed(model, architecture, keys),
    container: null,
    ignoredFiles: model.ignoredFiles,
    bytesOnDisk: model.files.reduce((total, file) => total + file.bytes, 0),
    gguf: { tokenizerBytes: tokenizerBytes(model) },
  };
}

function architectureOf(model: GgufModel, name: string | undefined): GgufArchitecture {
  if (name !== undefined && Object.hasOwn(GGUF_ARCHITECTURES, name)) return GGUF_ARCHITECTURES[name];
  const known = Object.keys(GGUF_ARCHITECTURES);
  const reason = name !== undefined && Object.hasOwn(REFUSED_ARCHITECTURES, name) ? REFUSED_ARCHITECTURES[name] : null;
  const shown = name === undefined ? 'no architecture' : `architecture ${quote(name)}`;
  const what = `${model.files[0].path} has ${shown}, which is not read from GGUF files${reason ? `: ${reason}` : ''}`;
  throw new ConfigError('UNKNOWN_ARCHITECTURE', `${what}; known: ${known.join(', ')}`, {
    hint: reason
      ? 'use the safetensors files of this model'
      : 'use a model of a known architecture, or its safetensors files',
    details: { file: model.files[0].path, path: 'general.architecture', got: name, known },
  });
}

/** Tensors that the architecture has no name for keep their own: whoever needs every tensor to be known refuses them. */
function renamed(model: GgufModel, architecture: GgufArchitecture, keys: GgufKeys): Map<string, TensorInfo> {
  const { tensors } = model;
  const result = new Map<string, TensorInfo>();
  for (const tensor of tensors.values()) {
    const name = newName(tensor.name, architecture, keys);
    if (result.has(name)) throw sameTwice(model, tensor.name, name);
    result.set(name, { ...tensor, name, shape: PER_HEAD.test(name) ? flat(tensor.shape) : tensor.shape });
  }
  return result;
}

/** [heads, rows, columns] -> [heads*rows, columns] */
function flat(shape: readonly number[]): number[] {
  return [shape.slice(0, -1).reduce((rows, size) => rows * size, 1), ...shape.slice(-1)];
}

function sameTwice(model: GgufModel, own: string, name: string): ModelFileError {
  const file = model.files[0].path;
  return new ModelFileError('TENSOR_TWICE', `${file} holds ${quote(name)} under two names; one is ${quote(own)}`, {
    hint: 'get the file anew, from a source you trust',
    details: { file, tensor: own, other: name },
  });
}

function newName(name: string, { names, alone = {}, prefix }: GgufArchitecture, keys: GgufKeys): string {
  if (Object.hasOwn(OUTER, name)) return OUTER[name];
  const [, block, part] = BLOCK.exec(name) ?? [];
  if (part !== undefined && Object.hasOwn(alone, part)) return alone[part];
  if (part === undefined || !Object.hasOwn(names, part)) return name;
  const inside = names[part];
  const joint = part === 'ffn_down_exps.weight' && keys.has(`blk.${block}.ffn_gate_up_exps.weight`);
  const before = prefix?.(keys, Number(block)) ?? `model.layers.${block}`;
  return `${before}.${joint ? inside.replace(/\.weight$/, '') : inside}`;
}

/** End of text, of a turn and of a message, where the metadata name them, and what the family adds. */
function stopIds(keys: GgufKeys, { stops, turnsHaveParts }: GgufArchitecture): number[] {
  const roles = turnsHaveParts ? ['eos'] : ['eos', 'eot', 'eom'];
  const ids = roles.map(role => keys.optional(`tokenizer.ggml.${role}_token_id`)).filter(id => id !== undefined);
  if (stops.length > 0) {
    const key = 'tokenizer.ggml.tokens';
    const tokens = readGgufStrings(keys.model.files[0].path, key, keys.model.metadata.get(key));
    for (const stop of stops) {
      const id = tokens.indexOf(stop);
      if (id >= 0) ids.push(id);
    }
  }
  return [...new Set(ids)];
}

function samplingOf(keys: GgufKeys): Record<string, unknown> | null {
  const entries = Object.entries(SAMPLING).map(([field, key]) => [field, keys.optional(key)] as const);
  const given = entries.filter(([, value]) => value !== undefined);
  return given.length === 0 ? null : { do_sample: true, ...Object.fromEntries(given) };
}

function tokenizerBytes({ metadata }: GgufModel): number {
  let bytes = 0;
  for (const [key, value] of metadata) if (key.startsWith('tokenizer.') && isGgufArray(value)) bytes += value.bytes;
  return bytes;
}
