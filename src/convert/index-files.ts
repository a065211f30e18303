/** The two files that say what lies where in a container. */

import { basename } from 'node:path';
import type { ContainerIndex } from '../formats/checkpoint-types.ts';
import { CONTAINER_VERSION } from '../formats/container-index.ts';
import type { ConvertState } from './state.ts';
import type { ConversionPlan } from './types.ts';

type Described = { role: string; encoding: string; rows: number; columns: number; offset: number };

export function shardIndex(plan: ConversionPlan): unknown {
  const tensors = plan.shards.flatMap(shard => shard.tensors.map(({ name, bytes }) => ({ name, bytes, shard })));
  return {
    metadata: { total_size: tensors.reduce((sum, tensor) => sum + tensor.bytes, 0) },
    weight_map: Object.fromEntries(tensors.map(({ name, shard }) => [name, shard.name])),
  };
}

export function containerIndex(plan: ConversionPlan, state: ConvertState): ContainerIndex {
  const matrices = new Map<string, { encoding: string; rows: number; columns: number }>();
  const experts = new Map<string, { parts: Described[] }>();
  const sha256 = new Map<string, string>();
  for (const shard of plan.shards) {
    for (const { name, dtype, parts, layer } of shard.tensors) {
      sha256.set(name, state.finished[shard.name].sha256[name]);
      const described = parts.map(({ role, layout, rows, columns, offset }) => {
        return { role, encoding: layout, rows, columns, offset };
      });
      const [{ encoding, rows, columns }] = described;
      if (layer !== null) experts.set(name, { parts: described });
      else if (dtype === 'U8') matrices.set(name, { encoding, rows, columns });
    }
  }
  const files = plan.checkpoint.files.map(({ path, bytes }) => ({ name: basename(path), bytes }));
  const source = { model_type: plan.family, experts: plan.experts, dense: plan.dense, files };
  return { version: CONTAINER_VERSION, writer: plan.writer, source, matrices, experts, sha256 };
}
