/** What `run --profile` prints after the answer: where the time went, and how much of the machine that is. At most 80 columns. */

import { formatBytes } from '../common/units.ts';
import { TIERS } from '../telemetry/fields.ts';
import type { Distribution } from '../telemetry/histogram.ts';
import type { Period, Profile } from '../telemetry/profile.ts';
import { percent } from './report.ts';

const SLOWEST_LAYERS = 3;

const PHASE_NAMES: Readonly<Record<string, string>> = {
  embed: 'embedding',
  mixer: 'attention',
  dense: 'dense MLPs',
  router: 'routers',
  guess: 'look-ahead',
  experts: 'experts',
  shared: 'shared experts',
  head: 'output matrix',
  sampler: 'sampler',
  other: 'other',
};

const LIMITS: Readonly<Record<string, string>> = {
  disk: 'the disk',
  DRAM: 'memory',
  compute: 'arithmetic',
  latency: 'latency',
};

export function profileReport(profile: Profile): string {
  const { prompt, decode } = profile;
  const lines = ['', 'where the time went                 decode            share         prompt'];
  const names = Object.keys(decode.phases_us);
  const row = (name: string, at: (period: Period) => number) =>
    `  ${name.padEnd(20)}${perToken(decode, at).padStart(18)}${share(decode, at).padStart(13)}${perToken(prompt, at).padStart(23)}`;
  for (const phase of names) {
    // the model may have no such part
    if (decode.phases_us[phase] + prompt.phases_us[phase] === 0) continue;
    lines.push(row(PHASE_NAMES[phase], p => p.phases_us[phase]));
  }
  lines.push(
    row('waiting for disk', p => p.wait_us),
    row('all', p => p.total_us),
  );
  lines.push('', 'experts                              pinned    cached     ahead      disk');
  lines.push(...tierLines('decode', decode), ...tierLines('prompt', prompt));
  lines.push('', 'disk           per token      service      waited   overlapped  read in vain');
  lines.push(...diskLines('decode', decode), ...diskLines('prompt', prompt));
  lines.push('', 'percentiles                      p50       p90       p99       max     count');
  for (const [name, of] of Object.entries(profile.percentiles)) lines.push(...percentileLines(name, of));
  lines.push(...slowestLines(profile));
  lines.push('', ...speedLines(profile));
  return lines.join('\n');
}

function perToken(period: Period, at: (period: Period) => number): string {
  return period.rows === 0 ? '-' : `${milliseconds(at(period) / period.rows)} /token`;
}

function share(period: Period, at: (period: Period) => number): string {
  return period.total_us === 0 ? '-' : percent(at(period) / period.total_us, 1);
}

function tierLines(name: string, { experts, rows }: Period): string[] {
  if (rows === 0 || experts.requests === 0) return [];
  const cells = (values: readonly string[]) => values.map(value => value.padStart(10)).join('');
  const hits = TIERS.map(tier => percent(experts[tier].hits / experts.requests, 1));
  const bytes = TIERS.map(tier => formatBytes(Math.round(experts[tier].bytes / rows)));
  return [
    `  ${`${name}, share asked for`.padEnd(31)}${cells(hits)}`,
    `  ${`${name}, bytes/token`.padEnd(31)}${cells(bytes)}`,
  ];
}

function diskLines(name: string, { disk, wait_us, rows }: Period): string[] {
  if (rows === 0) return [];
  const cells = [
    formatBytes(Math.round(disk.bytes / rows)).padStart(14),
    milliseconds(disk.service_us / rows).padStart(13),
    milliseconds(wait_us / rows).padStart(12),
    milliseconds(disk.overlap_us / rows).padStart(13),
    formatBytes(Math.round(disk.wasted_bytes / rows)).padStart(14),
  ];
  const drives = disk.bytes_by_drive.flatMap((bytes, drive) =>
    bytes > 0 ? [`${drive === 0 ? 'own drive' : `mirror ${drive}`} ${percent(bytes / disk.bytes, 1)}`] : [],
  );
  const line = `  ${name.padEnd(10)}${cells.join('')}`;
  return drives.length > 1 ? [line, `  ${name}, drives: ${drives.join(', ')}`] : [line];
}

const HISTOGRAM_TITLES: Readonly<Record<string, string>> = {
  token_us: 'time of a token',
  first_token_us: 'time to first token',
  layer_wait_us: 'wait of a layer',
  read_us: 'read of an expert',
  prompt_token_us: 'prompt, per token',
};

function percentileLines(name: string, { p50, p90, p99, max, count }: Distribution): string[] {
  if (count === 0) return [];
  const cells = [p50, p90, p99, max].map(us => milliseconds(us ?? 0).padStart(10)).join('');
  return [`  ${HISTOGRAM_TITLES[name].padEnd(24)}${cells}${String(count).padStart(10)}`];
}

function slowestLines({ layers, decode }: Profile): string[] {
  const mode = decode.rows > 0 ? 'decode' : 'prompt';
  const { rows, total_us, wait_us, disk_hits, requests } = layers[mode];
  if (rows === 0) return [];
  const order = total_us.map((_, layer) => layer).sort((a, b) => total_us[b] - total_us[a]);
  const lines = order.slice(0, SLOWEST_LAYERS).map(layer => {
    const missed = requests[layer] > 0 ? percent(disk_hits[layer] / requests[layer], 1) : '-';
    const times = [total_us[layer], wait_us[layer]].map(us => milliseconds(us / rows).padStart(14));
    return `  layer ${String(layer).padEnd(14)}${times.join('')}${missed.padStart(24)}`;
  });
  const title = `slowest layers (${mode})`;
  return ['', `${title.padEnd(26)}per token   of it waiting       experts from disk`, ...lines];
}

/** Name, what it gives, what a token needs of it, and the time that takes. */
function limitLine(name: string, gives: string, needs: string, us: number | null | undefined): string {
  const time = us === null || us === undefined ? '-' : milliseconds(us);
  return `  ${name.padEnd(12)}${gives.padEnd(36)}${needs.padStart(14)}${time.padStart(14)}`;
}

function speedLines({ speed, limits }: Profile): string[] {
  if (!limits) return [];
  const { disk_bytes_per_second: disk, memory_bytes_per_second: memory, compute_us: compute, readers } = limits;
  const bytes = (count: number | undefined) => (count === undefined ? '-' : formatBytes(Math.round(count)));
  const lines = [
    'what the machine allows, measured just now         needs/token     per token',
    limitLine('disk', `${rate(disk)}, ${readers} reads at a time`, bytes(speed?.needed_bytes), speed?.disk_us),
    limitLine('memory', rate(memory), bytes(speed?.touched_bytes), speed?.memory_us),
    limitLine('arithmetic', 'a token with its experts in memory', '', compute),
    '',
  ];
  if (!speed) return [...lines, 'phi: not known, because no token was decoded after the first'];
  const { phi, phi_serial, limit, ceiling_us, serial_us, measured_us } = speed;
  const isBound = phi >= 1 ? ['    1: the machine was slower while it was measured; run it again'] : [];
  return [
    ...lines,
    `phi ${phi.toFixed(2)} = ${milliseconds(ceiling_us)} / ${milliseconds(measured_us)} measured; limit: ${LIMITS[limit]}`,
    `    ${phi_serial.toFixed(2)} of an engine that reads and computes in turns (${milliseconds(serial_us)})`,
    ...isBound,
  ];
}

function rate(bytesPerSecond: number | null): string {
  return bytesPerSecond === null ? 'not measured' : `${formatBytes(Math.round(bytesPerSecond))}/s`;
}

/** Three digits and more: "0.012 ms", "1.23 ms", "123 ms". */
function milliseconds(us: number): string {
  const ms = us / 1000;
  if (ms >= 100) return `${ms.toFixed(0)} ms`;
  if (ms >= 10) return `${ms.toFixed(1)} ms`;
  return `${ms.toFixed(ms >= 1 || ms === 0 ? 2 : 3)} ms`;
}
