/** Sums as the JSON that `run --json` and GET /profile tell: snake_case, units in the names. */

import { MAX_DRIVES, type Numbers, overlapUs, PHASES, TIERS } from './fields.ts';
import type { Distribution } from './histogram.ts';
import { HISTOGRAM_NAMES, type Mode, type Sums } from './memory.ts';
import { type Speed, type SpeedLimits, speedOf } from './speed.ts';

/** Changes when a name or a meaning does. */
export const PROFILE_VERSION = 1;

export type Profile = ReturnType<typeof profileOf>;
export type Period = ReturnType<typeof periodOf>;

/** `limits`: what the machine allows, if somebody has measured it. */
export function profileOf(sums: Sums, limits: SpeedLimits | null) {
  const speed = limits && speedOf(sums.steps('decode'), limits);
  return {
    version: PROFILE_VERSION,
    prompt: periodOf(sums.steps('prompt')),
    decode: periodOf(sums.steps('decode')),
    percentiles: Object.fromEntries(HISTOGRAM_NAMES.map(name => [snake(name), roundedAll(sums.distribution(name))])),
    layers: { prompt: layersOf(sums, 'prompt'), decode: layersOf(sums, 'decode') },
    speed: speed && speedJson(speed),
    limits: limits && limitsJson(limits),
  };
}

/** Steps of one kind. */
export function periodOf(sums: Numbers) {
  const { steps, rows, promptRows, decodeRows, failed, reads, readBytes, serviceUs, waitUs, totalUs } = sums;
  // the time of all steps, divided as in those that were looked at
  const scale = sums['detailedUs'] > 0 ? (totalUs - waitUs) / sums['detailedUs'] : 0;
  return {
    steps,
    failed_steps: failed,
    detailed_steps: sums['detailed'],
    rows,
    prompt_rows: promptRows,
    decode_rows: decodeRows,
    total_us: rounded(totalUs),
    wait_us: waitUs,
    phases_us: Object.fromEntries(PHASES.map(phase => [phase, rounded(sums[`${phase}Us`] * scale)])),
    experts: {
      requests: sums['requests'],
      ...Object.fromEntries(TIERS.map(tier => [tier, { hits: sums[`${tier}Hits`], bytes: sums[`${tier}Bytes`] }])),
    } as Readonly<Record<(typeof TIERS)[number], { hits: number; bytes: number }>> & { requests: number },
    disk: {
      reads,
      bytes: readBytes,
      bytes_by_drive: Array.from({ length: MAX_DRIVES }, (_, drive) => sums[`drive${drive}Bytes`]),
      prefetched: sums['prefetched'],
      wasted: sums['wasted'],
      wasted_bytes: sums['wastedBytes'],
      service_us: rounded(serviceUs),
      overlap_us: rounded(overlapUs(sums)),
    },
  };
}

/** Of the steps that were looked at: rows, and one number per layer. */
function layersOf(sums: Sums, mode: Mode) {
  const layers = Array.from({ length: sums.layers }, (_, layer) => sums.layer(mode, layer));
  const column = (name: string) => layers.map(layer => rounded(layer[name]));
  return {
    rows: layers[0]?.['rows'] ?? 0,
    total_us: column('totalUs'),
    wait_us: column('waitUs'),
    requests: column('requests'),
    disk_hits: column('diskHits'),
    read_bytes: column('readBytes'),
  };
}

function speedJson(speed: Speed) {
  return {
    phi: speed.phi,
    phi_serial: speed.phiSerial,
    limit: speed.limit,
    tokens: speed.tokens,
    measured_us: speed.measuredUs,
    ceiling_us: speed.ceilingUs,
    serial_us: speed.serialUs,
    disk_us: speed.diskUs,
    memory_us: speed.memoryUs,
    compute_us: speed.computeUs,
    needed_bytes: speed.neededBytes,
    touched_bytes: speed.touchedBytes,
  };
}

function limitsJson(limits: SpeedLimits) {
  return {
    disk_bytes_per_second: limits.diskBytesPerSecond,
    memory_bytes_per_second: limits.memoryBytesPerSecond,
    compute_us: limits.computeUs,
    dense_bytes: limits.denseBytes,
    kv_bytes: limits.kvBytes,
    copies: limits.copies,
    readers: limits.readers,
  };
}

function roundedAll(of: Distribution): Distribution {
  return Object.fromEntries(
    Object.entries(of).map(([name, value]) => [name, value === null ? null : rounded(value)]),
  ) as unknown as Distribution;
}

/** To nanoseconds: sums of floats have digits that mean nothing. */
function rounded(us: number): number {
  return Math.round(us * 1000) / 1000;
}

/** tokenUs -> token_us */
export function snake(name: string): string {
  return name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`);
}
