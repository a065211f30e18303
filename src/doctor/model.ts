/** Checks of the model's files: nothing but names, sizes and headers is read. */

import fs from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { formatBytes } from '../common/units.ts';
import { readModel } from '../engine/model-files.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import { CONTAINER_INDEX_FILE, readContainerIndex } from '../formats/container-index.ts';
import { isThere, listNames, namesIn, quote, reading, statOf } from '../formats/files.ts';
import { readGgufHeader } from '../formats/gguf.ts';
import { findGguf } from '../formats/gguf-files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from '../formats/json.ts';
import { readSafetensorsHeader } from '../formats/safetensors.ts';
import { chooseShards, INDEX_FILE, readShardIndex } from '../formats/shard-index.ts';
import { openModel } from '../models/open.ts';
import { familyOf } from '../models/registry.ts';
import { requireHashes } from '../storage/record-table.ts';
import { fail, failed, pass, skip, warn } from './findings.ts';
import type { Check, Context, Finding } from './types.ts';

/** Names that details list; a report stays readable. */
const MAX_LISTED = 100;
/** Without these a model cannot be opened; a link to anything else may lead nowhere. */
const NEEDED =
  /(?:^(?:config|generation_config|tokenizer|tokenizer_config|special_tokens_map)\.json|\.index\.json|\.jinja|\.safetensors|\.gguf)$/;

/** What is left of work that has not come to its end: ours, and that of other tools. */
const LEFTOVER = /(?:\.incomplete|\.partial|\.part|\.aria2|\.crdownload|\.download)$|^coli\.convert\.(?:json|lock)$/;

function path({ options, found }: Context): Finding {
  const path = resolve(options.locate());
  const stat = statOf(path);
  // the loader says what is wrong, and what helps
  if (stat === undefined || !(stat.isDirectory() || findGgufFile(path))) openCheckpoint(path);
  const real = reading(path, () => fs.realpathSync(path));
  if (stat!.isDirectory()) namesIn(path);
  found.path = path;
  const through = real === path ? '' : `, through a link`;
  return pass(`a ${stat!.isDirectory() ? 'directory' : 'GGUF file'}${through}`, { path, real_path: real });
}

function findGgufFile(path: string): boolean {
  return /\.gguf$/i.test(path) && statOf(path)?.isFile() === true;
}

/** The directory that holds the model's files. */
export function directoryOf(path: string): string {
  return statOf(path)?.isDirectory() ? path : dirname(path);
}

function links({ found }: Context): Finding {
  const directory = directoryOf(found.path!);
  const all = namesIn(directory).filter(name => fs.lstatSync(join(directory, name)).isSymbolicLink());
  const dangling = all.filter(name => !leadsSomewhere(join(directory, name)));
  const details = { links: all.length, dangling: dangling.slice(0, MAX_LISTED) };
  if (dangling.length === 0) {
    return pass(all.length === 0 ? 'none' : `${all.length}, and each leads to a file`, details);
  }
  const summary = `${dangling.length} of ${all.length} links lead nowhere: ${listNames(dangling)}`;
  const fix = 'fetch the model again (coli pull), or put the real files in their places';
  return dangling.some(name => NEEDED.test(name)) ? fail(summary, fix, details) : warn(summary, fix, details);
}

/** False too for links that lead round in a circle. */
function leadsSomewhere(link: string): boolean {
  try {
    return fs.statSync(link, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

function config({ found }: Context): Finding {
  const path = found.path!;
  if (findGguf(path)) {
    found.config = openModel(path).config;
    return pass(`metadata of the GGUF file (${String(found.config.model_type)})`, { keys: sizeOf(found.config) });
  }
  const file = join(path, 'config.json');
  // says why it is not there: a cache, an unfinished conversion
  if (!isThere(file)) openCheckpoint(path);
  found.config = readJsonObject(file, MAX_CONFIG_BYTES);
  const generation = join(path, 'generation_config.json');
  const hasGeneration = isThere(generation);
  if (hasGeneration) readJsonObject(generation, MAX_CONFIG_BYTES);
  const names = ['config.json', ...(hasGeneration ? ['generation_config.json'] : [])];
  return pass(`${names.join(' and ')} can be read`, { keys: sizeOf(found.config), files: names });
}

function sizeOf(value: object): number {
  return Object.keys(value).length;
}

function family({ found }: Context): Finding {
  const config = found.config!;
  const family = familyOf(config);
  family.parseConfig(config);
  found.family = family;
  return pass(family.modelType, { family: family.modelType, chat: family.chat !== undefined });
}

function index({ found }: Context): Finding {
  const path = found.path!;
  if (findGgufUnchecked(path)) return skip('a GGUF model has no index');
  const details: Record<string, unknown> = {};
  const told: string[] = [];
  if (isThere(join(path, INDEX_FILE))) {
    const map = readShardIndex(join(path, INDEX_FILE));
    const shards = new Set(map.values()).size;
    Object.assign(details, { tensors: map.size, shards });
    told.push(`${map.size} tensors in ${shards} ${shards === 1 ? 'file' : 'files'}`);
  }
  if (isThere(join(path, CONTAINER_INDEX_FILE))) {
    const container = readContainerIndex(path);
    Object.assign(details, { container_version: container.version, writer: container.writer });
    told.push(`container of ${quote(container.writer)}`);
  }
  return told.length === 0 ? pass('none: the files tell for themselves') : pass(told.join('; '), details);
}

/** As findGguf, for a model whose parts may be missing. */
function findGgufUnchecked(path: string): boolean {
  try {
    return findGguf(path) !== null;
  } catch {
    return true;
  }
}

/** Every file is looked at, so that all damaged ones are known at once. */
function shards({ found }: Context): Finding {
  const path = found.path!;
  const { files, problem } = filesOf(path);
  const problems: unknown[] = problem === null ? [] : [problem];
  let bytes = 0;
  for (const [i, file] of files.entries()) {
    try {
      const header = /\.gguf$/i.test(file) ? readGgufHeader(file, i) : readSafetensorsHeader(file, i);
      bytes += header.identity.bytes;
    } catch (error) {
      problems.push(error);
    }
  }
  const details = { files: files.length, bytes };
  if (problems.length === 0) {
    const count = `${files.length} ${files.length === 1 ? 'file' : 'files'}`;
    return pass(`${count}, ${formatBytes(bytes)}, as long as their headers say`, details);
  }
  const [first] = problems.map(failed);
  if (problems.length === 1) return { ...first, details: { ...details, ...first.details } };
  const messages = problems.map(each => (each instanceof Error ? each.message : String(each)));
  const codes = problems.map(each => (each instanceof ColiError ? each.code : 'INTERNAL'));
  return fail(`${problems.length} files cannot be used: ${messages.slice(0, 3).join('; ')}`, first.fix!, {
    ...details,
    code: codes[0],
    problems: messages.slice(0, MAX_LISTED),
  });
}

/** Files that are there, and what is wrong with the set. */
function filesOf(path: string): { files: string[]; problem: unknown } {
  try {
    return { files: findGguf(path) ?? chooseShards(path).shards.map(name => join(path, name)), problem: null };
  } catch (problem) {
    const index = join(path, INDEX_FILE);
    if (!(problem instanceof ColiError) || problem.code !== 'SHARD_MISSING' || !isThere(index)) {
      return { files: [], problem };
    }
    const promised = [...new Set(readShardIndex(index).values())].map(name => join(path, name));
    return { files: promised.filter(isThere), problem };
  }
}

function tensors({ found }: Context): Finding {
  const files = readModel({ model: found.path! });
  found.files = files;
  const { checkpoint, shape, parts } = files;
  const details = {
    tensors: checkpoint.tensors.size,
    parameters: files.parameters,
    layers: shape.layers,
    experts: shape.experts,
    experts_per_token: shape.topK,
    without_indexer: parts.indexer === false,
  };
  const experts = shape.moeLayers.length * shape.experts;
  return pass(`${checkpoint.tensors.size} tensors and ${experts} experts, as the config says`, details);
}

/** What an engine with --verify would refuse. */
function verifiable({ found, options }: Context): Finding {
  if (!options.verify) return skip('no --verify given');
  const { table, checkpoint } = readModel({ model: found.path!, verify: true });
  requireHashes(table, checkpoint.directory);
  return pass(`a hash is stated for each of ${table.records} records`, { records: table.records });
}

function unused({ found }: Context): Finding {
  const { ignoredFiles, unindexedTensors = [], directory } = found.files!.checkpoint;
  const total = ignoredFiles.length + unindexedTensors.length;
  if (total === 0) return pass('no weights beside those of the model');
  const bytes = ignoredFiles.reduce((sum, name) => sum + (statIn(directory, name)?.size ?? 0), 0);
  const parts = [
    ...(ignoredFiles.length > 0
      ? [
          `weight files that are not read (${ignoredFiles.length}, ${formatBytes(bytes)}): ${listNames(ignoredFiles, 3)}`,
        ]
      : []),
    ...(unindexedTensors.length > 0
      ? [`tensors that the index does not list are read all the same: ${listNames(unindexedTensors, 3)}`]
      : []),
  ];
  return warn(parts.join('; '), 'move away what does not belong to the model', {
    files: ignoredFiles.slice(0, MAX_LISTED),
    bytes,
    tensors: unindexedTensors.slice(0, MAX_LISTED),
  });
}

function statIn(directory: string, name: string): fs.Stats | undefined {
  return leadsSomewhere(join(directory, name)) ? fs.statSync(join(directory, name)) : undefined;
}

/** In the model's directory, and among the blobs of its folder in the cache. */
function leftovers({ found }: Context): Finding {
  const directory = directoryOf(found.path!);
  const folder = /^(.*\/models--[^/]+)\/snapshots\/[^/]+/.exec(directory)?.[1];
  const places = [
    directory,
    ...(folder !== undefined && isThere(join(folder, 'blobs')) ? [join(folder, 'blobs')] : []),
  ];
  const files = places.flatMap(place => namesIn(place).map(name => join(place, name)));
  const left = files.filter(file => LEFTOVER.test(basename(file)));
  if (left.length === 0) return pass('nothing half-finished');
  const bytes = left.reduce((sum, file) => sum + (leadsSomewhere(file) ? fs.statSync(file).size : 0), 0);
  const isConversion = left.some(file => basename(file).startsWith('coli.convert.'));
  const again = isConversion ? 'the coli convert command continues' : 'coli pull continues';
  return warn(
    `half-finished files (${left.length}, ${formatBytes(bytes)}): ${listNames(
      left.map(file => basename(file)),
      3,
    )}`,
    `${again} when it is given again; if the model is complete, delete them`,
    { files: left.slice(0, MAX_LISTED), bytes },
  );
}

const group = 'model';

export const MODEL_CHECKS: readonly Check[] = [
  { id: 'model.path', group, needs: [], run: path },
  { id: 'model.links', group, needs: ['model.path'], run: links },
  { id: 'model.config', group, needs: ['model.path'], run: config },
  { id: 'model.family', group, needs: ['model.config'], run: family },
  { id: 'model.index', group, needs: ['model.path'], run: index },
  { id: 'model.shards', group, needs: ['model.path'], run: shards },
  { id: 'model.tensors', group, needs: ['model.family', 'model.shards'], run: tensors },
  { id: 'model.verify', group, needs: ['model.tensors'], run: verifiable },
  { id: 'model.unused', group, needs: ['model.tensors'], run: unused },
  { id: 'model.leftovers', group, needs: ['model.path'], run: leftovers },
];
