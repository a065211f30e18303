/** What an engine tells about itself, and the same for a model that is only looked at. */

import { listNames, quote } from '../formats/files.ts';
import { selectKernels } from '../kernels/select.ts';
import { encodingTable } from '../quant/resolve.ts';
import { closeFiles, openFiles } from '../storage/open-files.ts';
import type { EngineInfo, EngineOptions } from './api.ts';
import { fingerprint } from './identity.ts';
import { inspectMirrors } from './mirrors.ts';
import { type ModelFiles, readModel } from './model-files.ts';
import { type PlannedModel, planModel } from './model-plan.ts';
import { withPlan } from './plan-options.ts';
import { unsupportedGenerationSettings } from './sampling-options.ts';
import { UsageHistory } from './usage.ts';
import { usageInfo, usageMode } from './usage-mode.ts';

/** Enough for any real file; a note stays readable. */
const MAX_SETTINGS_TOLD = 20;

/** What opening would decide, from headers alone: no weights are read, no threads started. */
export function inspectModel(wanted: EngineOptions): EngineInfo {
  const options = withPlan(wanted);
  const files = readModel(options);
  const planned = planModel(files, options);
  const { name, note, warning } = selectKernels(options.kernels ?? 'auto');
  const paths = files.checkpoint.files.map(file => file.path);
  const opened = openFiles(paths, options.io ?? 'auto');
  closeFiles(opened.descriptors);
  const chosen = {
    kernels: name,
    kernelNote: note,
    kernelWarning: warning,
    directIo: opened.direct,
    ioNote: opened.note,
  };
  const info = describe(files, options, planned, chosen);
  info.notes.push(...inspectMirrors(options, files));
  const usage = usageMode(options.usage);
  if (usage !== 'off') {
    const history = new UsageHistory(files, usage === 'on' ? 'read' : usage, line => info.notes.push(line));
    info.usage.tokens = Math.round(history.total().tokens);
  }
  return info;
}

export interface Chosen {
  readonly kernels: EngineInfo['kernels'];
  readonly kernelNote: string | null;
  readonly kernelWarning: string | null;
  readonly directIo: boolean;
  readonly ioNote: string | null;
}

export function describe(files: ModelFiles, options: EngineOptions, planned: PlannedModel, chosen: Chosen): EngineInfo {
  const { checkpoint, family, shape, records } = files;
  const { settings } = planned;
  const notes = [...planned.notes, chosen.kernelWarning, chosen.ioNote].filter(note => note !== null);
  if (options.kv === 'bf16') notes.push('keys and values are kept as bf16: the numbers are not those of f32');
  if (files.parts.indexer === false) {
    notes.push(
      'the files have no indexer: every token attends to all earlier ones, also where the model would select some',
    );
  }
  const unused = unsupportedGenerationSettings(checkpoint.generationConfig);
  if (unused.length > 0)
    notes.push(`generation_config.json: ${listNames(unused, MAX_SETTINGS_TOLD)}: not supported, without effect`);
  const { ignoredFiles, unindexedTensors = [] } = checkpoint;
  const told = (names: readonly string[], what: string): void => {
    if (names.length > 0) notes.push(`${what}: ${names.length}, such as ${quote(names[0])}`);
  };
  told(ignoredFiles, 'weight files that the index does not name are not read');
  told(unindexedTensors, 'tensors that the index does not list are read all the same');
  return {
    directory: checkpoint.directory,
    family: family.modelType,
    layers: shape.layers,
    hiddenSize: shape.hiddenSize,
    experts: shape.experts,
    totalExperts: shape.moeLayers.length * shape.experts,
    topK: shape.topK,
    vocabSize: shape.vocabSize,
    maxContext: shape.maxContext,
    context: settings.context,
    parameters: files.parameters,
    bytesOnDisk: checkpoint.bytesOnDisk,
    encodings: encodingTable(records.records),
    kernels: chosen.kernels,
    kernelNote: chosen.kernelNote,
    activations: options.activations ?? 'int8',
    kv: options.kv ?? 'f32',
    slots: settings.slots,
    threads: settings.lanes,
    readers: settings.readers,
    directIo: chosen.directIo,
    policy: options.policy ?? 'auto',
    prefetch: options.prefetch ?? 'auto',
    usage: usageInfo(options.usage),
    plan: planned.summary,
    fingerprint: fingerprint(files, options),
    notes,
  };
}
