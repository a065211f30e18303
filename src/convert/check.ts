/** The end of a conversion: its result, opened as the engine will open it. */

import { ConvertError } from '../common/errors.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import { resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { RECORD_ALIGNMENT } from './outputs.ts';
import type { ConversionPlan } from './types.ts';

/** Every tensor must resolve, every expert of every layer be one aligned read without packing, everything have a hash. */
export function checkResult(plan: ConversionPlan): void {
  const result = openCheckpoint(plan.destination);
  const family = familyOf(result.config);
  const config = family.parseConfig(result.config);
  const shape = family.shape(config, plan.parts);
  const table = family.tensors(config, plan.parts);
  const { records } = resolveRecords(result, table, shape, Number.POSITIVE_INFINITY);
  const experts = records.slice(records.length - table.experts.length);
  const expected = shape.moeLayers.length * shape.experts;
  if (experts.length !== expected) throw failed(plan, `there are ${experts.length} experts, expected ${expected}`);
  for (const record of experts) {
    const [{ offset, bytes }] = record.extents;
    const whole = record.extents.length === 1 && offset % RECORD_ALIGNMENT === 0 && bytes % RECORD_ALIGNMENT === 0;
    if (!whole || record.packs.length > 0) throw failed(plan, `${record.name} is not one aligned record`);
    if (record.sha256 === null) throw failed(plan, `${record.name} has no hash`);
  }
  for (const name of result.tensors.keys()) {
    if (!result.container?.sha256.has(name)) throw failed(plan, `${name} has no hash`);
  }
}

function failed({ destination }: ConversionPlan, what: string): ConvertError {
  return new ConvertError('SELF_CHECK_FAILED', `${destination}: ${what}`, {
    hint: 'this is a bug: please report it with the command',
    details: { destination },
  });
}
