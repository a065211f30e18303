/** Which files of a repository are fetched: what an engine needs, and the weights once. */

import { HubError } from '../common/errors.ts';
import { listNames } from '../formats/files.ts';
import { matchesGlob } from './glob.ts';
import type { HubFile } from './hub-file.ts';

export interface Skipped {
  readonly reason: string;
  readonly files: readonly HubFile[];
}

export interface Selection {
  readonly chosen: readonly HubFile[];
  readonly skipped: readonly Skipped[];
}

const SAFETENSORS = /\.safetensors$/i;
const GGUF = /\.gguf$/i;
/** Weights in forms that are not read. */
const OTHER_WEIGHTS = /\.(?:bin|pth|pt|ckpt|h5|msgpack|onnx|onnx_data|tflite|mlmodel|npz|ot|pdparams)$/i;
/** A second copy of the weights that some publishers add under the names of their own tools. */
const CONSOLIDATED = /^consolidated[\w.-]*\.safetensors$/i;
/** Configuration, tokenizer and chat template; what its licence says. */
const SMALL_FILES = [/\.(?:json|jinja|model)$/i, /^(?:merges|vocab|added_tokens)\.txt$/i];
const PAPERS = /^(?:licen[cs]e|notice|readme|use_policy|copying)[\w.-]*$/i;

const ELSEWHERE = 'in subdirectories, where no engine looks';
const UNKNOWN = 'nothing that an engine reads';
const NOT_INCLUDED = 'weights that --include does not name';

/**
 * Without patterns: safetensors weights, configuration, tokenizer, chat template, licence and readme of the top directory.
 * With patterns the weights are what they match, wherever it lies. Throws NO_WEIGHTS or INCLUDE_MATCHES_NOTHING with what there is.
 */
export function selectFiles(files: readonly HubFile[], include: readonly string[] = []): Selection {
  for (const pattern of include) {
    if (!files.some(file => matchesGlob(pattern, file.path))) throw matchesNothing(pattern, files);
  }
  if (include.length === 0) requireWeights(files);
  const top = files.filter(isTop);
  const hasPlainShards = top.some(file => SAFETENSORS.test(file.path) && !CONSOLIDATED.test(file.path));
  const chosen: HubFile[] = [];
  const skipped = new Map<string, HubFile[]>();
  for (const file of files) {
    const reason = include.some(pattern => matchesGlob(pattern, file.path))
      ? null
      : reasonToSkip(file, include.length > 0, hasPlainShards);
    if (reason === null) chosen.push(file);
    else skipped.set(reason, [...(skipped.get(reason) ?? []), file]);
  }
  return { chosen, skipped: [...skipped].map(([reason, left]) => ({ reason, files: left })) };
}

function reasonToSkip(file: HubFile, onlyIncluded: boolean, hasPlainShards: boolean): string | null {
  const { path } = file;
  if (!isTop(file)) return ELSEWHERE;
  if (SMALL_FILES.some(pattern => pattern.test(path)) || PAPERS.test(path)) return null;
  if (onlyIncluded)
    return SAFETENSORS.test(path) || GGUF.test(path) || OTHER_WEIGHTS.test(path) ? NOT_INCLUDED : UNKNOWN;
  if (CONSOLIDATED.test(path) && hasPlainShards) return 'the same weights as in the other safetensors files';
  if (SAFETENSORS.test(path)) return null;
  if (GGUF.test(path)) return 'gguf files beside safetensors';
  return OTHER_WEIGHTS.test(path) ? 'weights in forms that are not read, beside safetensors' : UNKNOWN;
}

function requireWeights(files: readonly HubFile[]): void {
  if (files.some(file => isTop(file) && SAFETENSORS.test(file.path))) return;
  const pathsOf = (pattern: RegExp) => files.map(({ path }) => path).filter(path => pattern.test(path));
  const gguf = pathsOf(GGUF);
  if (gguf.length > 0) {
    throw new HubError('NO_WEIGHTS', `there are no safetensors weights, but GGUF files: ${listNames(gguf, 30)}`, {
      hint: `choose with --include, for example --include '${gguf[0].replace(/-\d{5}-of-(\d{5})/, '-*-of-$1')}'`,
      details: { gguf: gguf.slice(0, 100) },
    });
  }
  const deeper = pathsOf(SAFETENSORS);
  if (deeper.length > 0) {
    throw new HubError('NO_WEIGHTS', `safetensors weights lie only in subdirectories: ${listNames(deeper)}`, {
      hint: "choose with --include, for example --include 'DIRECTORY/*'",
    });
  }
  const others = pathsOf(OTHER_WEIGHTS);
  const found = others.length > 0 ? `; ${listNames(others)} cannot be read` : '';
  throw new HubError('NO_WEIGHTS', `there are no safetensors or GGUF weights${found}`, {
    hint: 'look for another repository of this model that has safetensors files',
  });
}

function matchesNothing(pattern: string, files: readonly HubFile[]): HubError {
  const names = files.map(({ path }) => path);
  return new HubError('INCLUDE_MATCHES_NOTHING', `no file matches --include ${JSON.stringify(pattern)}`, {
    hint: `there are ${listNames(names, 30)}`,
  });
}

function isTop({ path }: HubFile): boolean {
  return !path.includes('/');
}
