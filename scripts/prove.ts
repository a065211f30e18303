/**
 * `npm run prove -- --nano DIR`: holds the engine to what an independent implementation computed for the bundled model.
 * DIR has the model's original BF16 files and their eval/ folder. With the BF16 files every domain's perplexity must be
 * the reference's and every greedy token too; containers are measured beside them. Writes docs/proof-nano.json.
 */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Progress, tokenAmount } from '../src/cli/progress.ts';
import { ColiError } from '../src/common/errors.ts';
import type { Activations } from '../src/engine/api.ts';
import { openEngine } from '../src/engine/engine.ts';
import { type GoldenDomain, type GoldenSample, readGoldenDomains, readGoldenSamples } from '../src/eval/golden.ts';
import { checkSample, type DomainResult, groupDomains, measureDomain, type SampleResult } from '../src/eval/proof.ts';
import { readContainerIndex } from '../src/formats/container-index.ts';
import { describeRun, type ProofRun, printDomain, printGroups, printSamples, proofJson } from './proof-report.ts';

/** How far the perplexity of the BF16 files may be from the reference, per domain. */
const MAX_DIFFERENCE_PERCENT = 0.1;
/** What the encodings of the bundled container may cost, over all chat and over all plain texts. */
const MAX_COST_PERCENT = 3;
/** For --quick and for exact activations: chat in two languages, code, a manual, prose; short ones. */
const FEW = ['chat_commands_it', 'chat_http', 'chat_small_other', 'chat_unicode', 'code_sql', 'man_en', 'prose_it'];

const ROOT = path.join(import.meta.dirname, '..');
const BUNDLED = path.join('models', 'nano');
const PROOF = path.join('docs', 'proof-nano.json');
const USAGE = `usage: npm run prove -- --nano DIR [--container DIR]... [--quick]
  --nano DIR       the original BF16 files of the bundled model, with their eval/ folder
  --container DIR  a conversion of them that is measured too; may be repeated
  --quick          a few domains and samples; writes nothing`;

interface Subject {
  readonly name: string;
  readonly directory: string;
  readonly activations?: Activations;
  /** Every greedy token must be the reference's. */
  readonly mustMatch: boolean;
  readonly domains: readonly GoldenDomain[];
  readonly samples: readonly GoldenSample[];
}

interface Golden {
  readonly folder: string;
  readonly window: number;
}

/** Opens one model, measures all of it, and prints each figure as soon as it is known. */
async function measure(subject: Subject, golden: Golden): Promise<ProofRun> {
  const { name, directory, activations, mustMatch } = subject;
  const engine = await openEngine({ model: directory, activations });
  const progress = new Progress();
  try {
    console.log(`\n${name}: ${describeRun(engine.info)}`);
    const started = performance.now();
    const domains: DomainResult[] = [];
    const total = subject.domains.reduce((sum, domain) => sum + domain.predicted_tokens, 0);
    let before = 0;
    for (const domain of subject.domains) {
      const show = (done: number) => progress.update(domain.name, before + done, total, tokenAmount);
      const result = await measureDomain(engine, domain, golden.folder, golden.window, show);
      before += domain.predicted_tokens;
      domains.push(result);
      progress.clear();
      printDomain(result);
    }
    printGroups(domains, (performance.now() - started) / 1000);
    const samples: SampleResult[] = [];
    for (const sample of subject.samples) {
      progress.update('greedy samples', samples.length, subject.samples.length, (done, all) => `${done} of ${all}`);
      samples.push(await checkSample(engine, sample));
    }
    progress.clear();
    printSamples(samples, mustMatch);
    return { name, directory, info: engine.info, domains, samples };
  } finally {
    progress.clear();
    await engine.close();
  }
}

/** One line per bound that is missed. */
function missedBounds(checkpoint: ProofRun, bundled: ProofRun): string[] {
  const missed: string[] = [];
  for (const { name, sameTokens, differencePercent } of checkpoint.domains) {
    if (!sameTokens) missed.push(`${name}: the tokens are not the reference's`);
    if (Math.abs(differencePercent) <= MAX_DIFFERENCE_PERCENT) continue;
    missed.push(
      `${name}: perplexity differs by ${differencePercent.toFixed(4)} %, allowed ${MAX_DIFFERENCE_PERCENT} %`,
    );
  }
  for (const [i, { difference }] of checkpoint.samples.entries()) {
    if (difference) missed.push(`sample ${i}: token ${difference.position} differs`);
  }
  for (const { name, differencePercent } of groupDomains(bundled.domains)) {
    if (differencePercent < MAX_COST_PERCENT) continue;
    missed.push(`${BUNDLED}: ${name} texts cost ${differencePercent.toFixed(2)} %, allowed ${MAX_COST_PERCENT} %`);
  }
  return missed;
}

async function main({ nano, containers, quick }: Arguments): Promise<number> {
  const folder = path.join(nano, 'eval');
  const { window, domains } = readGoldenDomains(folder);
  const samples = readGoldenSamples(folder);
  const few = domains.filter(({ name }) => FEW.includes(name));
  const golden = { folder, window };
  const bundled = path.join(ROOT, BUNDLED);
  const part = { domains: quick ? few : domains, samples: quick ? samples.slice(0, 10) : samples };

  const checkpoint = await measure({ name: 'bf16 checkpoint', directory: nano, mustMatch: true, ...part }, golden);
  const shipped = await measure({ name: BUNDLED, directory: bundled, mustMatch: false, ...part }, golden);
  const exact = {
    name: `${BUNDLED}, exact activations`,
    directory: bundled,
    activations: 'exact' as const,
    mustMatch: false,
  };
  const others = [await measure({ ...exact, domains: few, samples: [] }, golden)];
  for (const directory of containers) {
    others.push(
      await measure({ name: containerName(directory), directory, mustMatch: false, ...part, samples: [] }, golden),
    );
  }

  const missed = missedBounds(checkpoint, shipped);
  console.log(missed.length === 0 ? '\nproved: every bound holds' : `\nNOT proved:\n  ${missed.join('\n  ')}`);
  if (!quick) {
    const bounds = { perplexity_percent: MAX_DIFFERENCE_PERCENT, container_cost_percent: MAX_COST_PERCENT };
    writeFileSync(
      path.join(ROOT, PROOF),
      proofJson({ bounds, missed, window, runs: [checkpoint, shipped, ...others] }),
    );
    console.log(`written: ${PROOF}`);
  }
  return missed.length === 0 ? 0 : 1;
}

/** "q8 experts, bf16 dense" */
function containerName(directory: string): string {
  const source = readContainerIndex(directory).source;
  return `${source?.experts} experts, ${source?.dense} dense`;
}

interface Arguments {
  readonly nano: string;
  readonly containers: readonly string[];
  readonly quick: boolean;
}

function readArguments(): Arguments | string {
  try {
    const { values } = parseArgs({
      options: {
        nano: { type: 'string' },
        container: { type: 'string', multiple: true, default: [] },
        quick: { type: 'boolean', default: false },
      },
    });
    const { nano, container, quick } = values;
    return nano ? { nano, containers: container, quick } : '--nano DIR is missing';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

const args = readArguments();
if (typeof args === 'string') {
  console.error(`prove: ${args}\n${USAGE}`);
  process.exitCode = 2;
} else {
  try {
    process.exitCode = await main(args);
  } catch (error) {
    if (process.env.COLI_DEBUG || !(error instanceof ColiError)) throw error;
    console.error(`prove: ${error.message}${error.hint ? `; ${error.hint}` : ''}`);
    process.exitCode = 1;
  }
}
