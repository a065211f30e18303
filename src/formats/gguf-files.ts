/** Which GGUF files make a model: one file, or the numbered parts of a split one. */

import { basename, dirname, join, resolve } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import type { FileIdentity, TensorInfo } from './checkpoint-types.ts';
import { isThere, listNames, namesIn, statOf } from './files.ts';
import { type GgufHeader, readGgufHeader } from './gguf.ts';
import { DOWNLOAD, ggufFault } from './gguf-cursor.ts';
import type { GgufMetadata } from './gguf-metadata.ts';
import { joinTensors } from './tensor-table.ts';

/** The largest published models have about 30 parts. */
const MAX_PARTS = 1000;

const GGUF = /\.gguf$/i;
const PART = /^(.+)-(\d{5})-of-(\d{5})\.gguf$/i;
/** Image encoders lie beside models under this name, and side files of macOS under that one. */
const OTHER = /^(?:mmproj|\._)/i;

export interface GgufModel {
  /** What the user named: a file, or the directory that holds it. */
  readonly path: string;
  /** One for each part. */
  readonly files: readonly FileIdentity[];
  /** Of the first part. */
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly ignoredFiles: readonly string[];
}

/** The parts, in order, of the GGUF model at `path`; null where `path` is something else. No file is opened. */
export function findGguf(path: string): string[] | null {
  const root = resolve(path);
  const stat = statOf(root);
  if (stat?.isFile()) return GGUF.test(root) ? partsOf(dirname(root), basename(root)) : null;
  if (!stat?.isDirectory()) return null;
  const names = namesIn(root);
  const candidates = names.filter(name => GGUF.test(name) && !OTHER.test(name));
  if (candidates.length === 0 || names.some(name => name.endsWith('.safetensors'))) return null;
  // the parts of one model count once
  const models = Map.groupBy(candidates, name => PART.exec(name)?.[1] ?? name);
  if (models.size === 1) return partsOf(root, candidates[0]);
  throw new ModelFileError('GGUF_AMBIGUOUS', `${root} holds several GGUF models: ${listNames([...models.keys()])}`, {
    hint: 'give the path of one of the files',
    details: { file: root, models: [...models.keys()].slice(0, 100) },
  });
}

function partsOf(directory: string, name: string): string[] {
  const match = PART.exec(name);
  if (match === null) return [join(directory, name)];
  const count = Number(match[3]);
  if (count < 1 || count > MAX_PARTS) {
    throw ggufFault(
      join(directory, name),
      'GGUF_BAD_SPLIT',
      `is one of ${count} parts; possible are 1 to ${MAX_PARTS}`,
      DOWNLOAD,
    );
  }
  const number = (n: number) => String(n).padStart(5, '0');
  const names = Array.from({ length: count }, (_, i) => `${match[1]}-${number(i + 1)}-of-${match[3]}${name.slice(-5)}`);
  const missing = names.filter(part => !isThere(join(directory, part)));
  if (missing.length > 0) {
    const what = `${missing.length} of ${count} parts are missing: ${listNames(missing)}`;
    throw new ModelFileError('SHARD_MISSING', `${directory}: ${what}`, {
      hint: 'finish the download: all parts must lie in one directory',
      details: { file: join(directory, missing[0]), missing: missing.slice(0, 100) },
    });
  }
  return names.map(part => join(directory, part));
}

/** Reads the headers of the parts that `findGguf` gave for `path`, and checks that they belong together. */
export function openGguf(path: string, parts: readonly string[]): GgufModel {
  const headers = parts.map((part, file) => readGgufHeader(part, file));
  for (const [file, header] of headers.entries()) requirePart(header, file, headers.length);
  const tensors = joinTensors(headers);
  const [{ metadata, identity }] = headers;
  const promised = metadata.get('split.tensors.count');
  if (headers.length > 1 && promised !== undefined && Number(promised) !== tensors.size) {
    const what = `promises ${String(promised)} tensors in all parts, but they hold ${tensors.size}`;
    throw ggufFault(identity.path, 'GGUF_BAD_SPLIT', what, DOWNLOAD, { expected: promised, got: tensors.size });
  }
  const root = resolve(path);
  const used = new Set(parts.map(part => basename(part)));
  const beside = statOf(root)?.isDirectory() ? namesIn(root) : [];
  const ignoredFiles = beside.filter(name => GGUF.test(name) && !used.has(name));
  return { path: root, files: headers.map(header => header.identity), metadata, tensors, ignoredFiles };
}

/** `split.no` and `split.count` say which part of how many a file is. */
function requirePart({ metadata, identity }: GgufHeader, index: number, count: number): void {
  const [number, of] = ['split.no', 'split.count'].map(key => metadata.get(key));
  if (count === 1 && (of === undefined || Number(of) === 1)) return;
  if (Number(number) === index && Number(of) === count) return;
  const shown = of === undefined ? 'a whole model' : `part ${Number(number) + 1} of ${String(of)}`;
  const renamed =
    count === 1 ? 'its name does not tell where the others are' : `its name says ${index + 1} of ${count}`;
  const hint = 'give all parts of one model the names that they were published under';
  throw ggufFault(identity.path, 'GGUF_BAD_SPLIT', `is ${shown} by its metadata, but ${renamed}`, hint);
}
