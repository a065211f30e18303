/** What scripts/prove.ts prints and what it writes. */

import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { packageVersion } from '../src/cli/model.ts';
import { formatBytes } from '../src/common/units.ts';
import type { EngineInfo } from '../src/engine/api.ts';
import { type DomainResult, type GroupResult, groupDomains, type SampleResult } from '../src/eval/proof.ts';

export interface ProofRun {
  readonly name: string;
  readonly directory: string;
  readonly info: EngineInfo;
  readonly domains: readonly DomainResult[];
  readonly samples: readonly SampleResult[];
}

export interface Proof {
  readonly bounds: Readonly<Record<string, number>>;
  readonly missed: readonly string[];
  /** Predictions per window. */
  readonly window: number;
  readonly runs: readonly ProofRun[];
}

/** "64.1 MB on disk, wasm-relaxed kernels, 2 threads" */
export function describeRun(info: EngineInfo): string {
  const activations = activationsOf(info);
  return [
    `${formatBytes(info.bytesOnDisk)} on disk`,
    `${info.kernels} kernels`,
    ...(activations ? [`${activations} activations`] : []),
    `${info.threads} threads`,
  ].join(', ');
}

/** null where no weight has an integer encoding, so that activations are float32 in any case. */
function activationsOf(info: EngineInfo): string | null {
  const integers = Object.keys(info.encodings).some(name => !/^(f32|f16|bf16)$/.test(name));
  return integers ? info.activations : null;
}

export function printDomain(result: DomainResult): void {
  printRow(result.name, result);
}

/** `seconds`: what the domains took. It is not recorded: speed is measured elsewhere, on a machine with nothing else to do. */
export function printGroups(domains: readonly DomainResult[], seconds: number): void {
  for (const group of groupDomains(domains)) printRow(`all ${group.name}`, group);
  const { name, differencePercent } = worstDomain(domains);
  console.log(`  largest difference: ${name} ${signed(differencePercent)} %`);
  console.log(`  ${(tokensOf(domains) / seconds).toFixed(0)} tokens per second`);
}

function printRow(
  name: string,
  { ppl, referencePpl, differencePercent }: Pick<GroupResult, 'ppl' | 'referencePpl' | 'differencePercent'>,
): void {
  const figures = [ppl.toFixed(5), referencePpl.toFixed(5), `${signed(differencePercent)} %`];
  console.log(`  ${name.padEnd(18)}${figures.map(text => text.padStart(11)).join('')}`);
}

function signed(percent: number): string {
  return `${percent < 0 ? '' : '+'}${percent.toFixed(4)}`;
}

function tokensOf(domains: readonly DomainResult[]): number {
  return domains.reduce((sum, domain) => sum + domain.predictedTokens, 0);
}

function worstDomain(domains: readonly DomainResult[]): DomainResult {
  return domains.reduce((worst, domain) =>
    Math.abs(domain.differencePercent) > Math.abs(worst.differencePercent) ? domain : worst,
  );
}

/** `details`: name every sample that differs. */
export function printSamples(samples: readonly SampleResult[], details: boolean): void {
  if (samples.length === 0) return;
  const same = samples.filter(({ difference }) => difference === null).length;
  const answers = samples.filter(({ sameAnswer }) => sameAnswer).length;
  const logits = Math.max(...samples.map(({ maxLogitDifference }) => maxLogitDifference));
  console.log(
    `  greedy samples: ${same} of ${samples.length} the reference's in every token, ${answers} up to their stop id`,
  );
  console.log(`  largest difference of a logit along the reference's samples: ${logits.toExponential(2)}`);
  for (const { prompt, difference } of details ? samples : []) {
    if (!difference) continue;
    const { position, expected, got, referenceMargin } = difference;
    const margin = `where the reference's best logit leads by ${referenceMargin.toFixed(5)}`;
    console.log(`    ${JSON.stringify(prompt)}: token ${position} is ${got}, not ${expected}, ${margin}`);
  }
}

/** The whole proof; small objects stay on one line. */
export function proofJson({ bounds, missed, window, runs }: Proof): string {
  const [cpu] = os.cpus();
  const proof = {
    date: new Date().toISOString(),
    passed: missed.length === 0,
    missed,
    bounds,
    window,
    machine: {
      cpu: cpu?.model.trim() ?? 'unknown',
      logical_cpus: os.availableParallelism(),
      memory_bytes: os.totalmem(),
      system: `${os.type()} ${os.release()} ${os.arch()}`,
    },
    versions: { colibri: packageVersion(), node: process.versions.node, v8: process.versions.v8 },
    runs: runs.map(runJson),
  };
  return `${JSON.stringify(proof, null, 1).replace(/\{[^{}[\]]*\}/g, object => object.replace(/\s*\n\s*/g, ' '))}\n`;
}

function runJson({ name, directory, info, domains, samples }: ProofRun) {
  const worst = worstDomain(domains);
  return {
    name,
    bytes_on_disk: info.bytesOnDisk,
    encodings: info.encodings,
    files: weightFiles(directory),
    kernels: info.kernels,
    activations: activationsOf(info),
    threads: info.threads,
    predicted_tokens: tokensOf(domains),
    groups: groupDomains(domains).map(group => ({
      name: group.name,
      domains: group.domains,
      ...figures(group),
    })),
    largest_difference: { name: worst.name, difference_percent: worst.differencePercent },
    domains: domains.map(domain => ({ name: domain.name, ...figures(domain), same_tokens: domain.sameTokens })),
    samples: samples.map(({ prompt, tokens, matching, sameAnswer, difference, maxLogitDifference }) => ({
      prompt,
      tokens,
      matching,
      same_answer: sameAnswer,
      ...(difference && {
        got: difference.got,
        expected: difference.expected,
        reference_margin: difference.referenceMargin,
      }),
      max_logit_difference: maxLogitDifference,
    })),
  };
}

function figures({ predictedTokens, ppl, referencePpl, differencePercent }: Omit<GroupResult, 'name' | 'domains'>) {
  return {
    predicted_tokens: predictedTokens,
    ppl,
    reference_ppl: referencePpl,
    difference_percent: differencePercent,
  };
}

function weightFiles(directory: string) {
  return globSync('*.safetensors', { cwd: directory })
    .sort()
    .map(name => ({
      name,
      sha256: createHash('sha256')
        .update(readFileSync(path.join(directory, name)))
        .digest('hex'),
    }));
}
