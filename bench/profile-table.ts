/** The profile as text. */

import { formatBytes } from '../src/common/units.ts';
import type { Profile } from './profile.ts';
import { mean, PHASE_NAMES, PHASES, type Phase } from './profile-clock.ts';
import { memoryLimit } from './profile-memory.ts';
import type { Section } from './profile-subject.ts';

const gigabytes = (bytesPerSecond: number) => `${(bytesPerSecond / 1e9).toFixed(1)} GB/s`;

export function printProfile(profile: Profile): void {
  const { threads, readers, kernels, share, sections, barrier, memory, allocations } = profile;
  console.log(`${profile.machine}; ${profile.model}`);
  console.log(
    `${kernels}, ${threads} ${threads === 1 ? 'lane' : 'lanes'}, ${readers} readers, ` +
      `slots for ${Math.round(share * 100)} % of the experts`,
  );
  const limit = memoryLimit(memory, threads);
  for (const section of sections) {
    console.log(`\n${sectionLines(section).join('\n')}`);
    console.log(limitLines(section, limit.bytesPerSecond).join('\n'));
  }
  console.log('\nmemory, read from a region of 512 MiB, best round before and after the profile:');
  for (const [i, { how, lanes, bytesPerSecond }] of memory[0].entries()) {
    const count = `${String(lanes).padStart(2)} ${lanes === 1 ? 'lane ' : 'lanes'}`;
    const [before, after] = [bytesPerSecond, memory[1][i].bytesPerSecond].map(speed => gigabytes(speed).padStart(11));
    console.log(`  ${count} ${before} ${after}  ${how}`);
  }
  if (limit.drifted) console.log('  memory changed its speed in the meantime: the limit above is a guess');
  const asleep = barrier.parkedUs === null ? '' : `, ${barrier.parkedUs.toFixed(1)} us when the lanes sleep`;
  const empty = threads === 1 ? 'a job without work, no other lane' : 'a job without work: lanes spinning';
  console.log(`${empty} ${barrier.spinningUs.toFixed(2)} us${asleep}`);
  const lanes = allocations.lanes.map((bytes, i) => `, lane ${i + 1} ${bytes.toFixed(1)}`).join('');
  console.log(
    `bytes of heap per token: forward pass ${Math.round(allocations.pass)}, sampler ` +
      `${Math.round(allocations.sampler)} (medians; without text and messages)${lanes}`,
  );
}

/** The table of one section. */
export function sectionLines(section: Section): string[] {
  const { kind, tokensPerStep, steps, phases, total, plainMs, counts } = section;
  const what = kind === 'decode' ? `decode, ${steps} tokens` : `prefill, ${steps} chunks of ${tokensPerStep} tokens`;
  const row = (name: string, ms: number, rate = '') =>
    `  ${name.padEnd(32)}${ms.toFixed(3).padStart(10)}${percent(ms / total).padStart(9)}${rate.padStart(12)}`.trimEnd();
  const rows = PHASE_NAMES.filter(phase => phases[phase] > 0).map(phase =>
    row(PHASES[phase], phases[phase], weightRate(section, phase)),
  );
  const plain = mean(plainMs);
  return [
    `${what}, mean of the middle half:`,
    `  ${'phase'.padEnd(32)}${'ms/token'.padStart(10)}${'share'.padStart(9)}${'weights'.padStart(12)}`,
    ...rows,
    row('sum = time of a token', total),
    `  without this profiler ${plainMs.map(ms => ms.toFixed(3)).join(' and ')} ms: it costs ` +
      `${signed(total - plain)} ms (${signed((total / plain - 1) * 100)} %)`,
    `  per ${kind === 'decode' ? 'token' : 'chunk'}: ${whole(counts.shared + counts.alone)} jobs ` +
      `(${whole(counts.shared)} shared by the lanes, of which ${whole(counts.woken)} found one asleep), ` +
      `${whole(counts.commands)} commands, ${whole(counts.chunks)} chunks; experts ${percent(section.hitRate)} hits, ` +
      `${formatBytes(section.bytesReadPerStep)} read`,
  ];
}

/** Weights per token against the speed of memory. */
export function limitLines(section: Section, bytesPerSecond: number): string[] {
  const { counts, tokensPerStep, plainMs } = section;
  const weights = PHASE_NAMES.reduce((sum, phase) => sum + counts.weightBytes[phase], 0) / tokensPerStep;
  const seconds = mean(plainMs) / 1000;
  const ceiling = bytesPerSecond / weights;
  const past = counts.keyValueBytes / tokensPerStep;
  return [
    `  weights ${formatBytes(weights)} per token at ${gigabytes(weights / seconds)} (keys and values ` +
      `${formatBytes(past)}); memory gives ${gigabytes(bytesPerSecond)}`,
    `  ${(1 / seconds).toFixed(2)} tok/s of ${ceiling.toFixed(2)} that memory allows: ${percent(1 / seconds / ceiling)}`,
  ];
}

/** Bytes of weights of all lanes by the time that the engine's own share took. */
function weightRate({ counts, phases, tokensPerStep }: Section, phase: Phase): string {
  const bytes = counts.weightBytes[phase] / tokensPerStep;
  return bytes > 0 ? gigabytes(bytes / (phases[phase] / 1000)) : '';
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function signed(value: number): string {
  return `${value < 0 ? '-' : '+'}${Math.abs(value).toFixed(2)}`;
}

function whole(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
