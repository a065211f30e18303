/**
 * What an encoding of the experts costs: divergence from the source's next-token distributions, agreement of the likeliest token and
 * perplexity, on the evaluation texts of the bundled model. Everything but the experts stays bfloat16, so that only they differ.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { convertCheckpoint } from '../src/convert/convert.ts';
import type { Engine } from '../src/engine/api.ts';
import { openEngine } from '../src/engine/engine.ts';
import { type DivergenceReport, evalDivergence } from '../src/eval/divergence.ts';
import { shareInterval } from '../src/eval/statistics.ts';
import { rewriteModel } from '../test/support/rewrite.ts';

/** Languages, code and chat; about 20,000 tokens. */
const TEXTS = ['chat_commands', 'chat_mixed', 'code_python', 'man_en', 'man_it', 'prose_en'];
const MAX_TEXT_CHARACTERS = 12_000;

const USAGE = `usage: npm run bench -- quality --nano DIR
  --nano DIR   the original BF16 files of the bundled model, with their eval/ folder`;

interface Variant {
  readonly name: string;
  /** Of the experts, scales included. */
  readonly bits: string;
  /** Makes the model below a directory and says where it is. */
  make(nano: string, root: string): Promise<string> | string;
}

const isExpert = (name: string) => /\.experts\.\d+\..*\.weight$/.test(name);

function rewritten(name: string, bits: string): Variant {
  return { name, bits, make: (nano, root) => rewriteModel(nano, root, each => (isExpert(each) ? name : null)).encoded };
}

function converted(name: string, bits: string, experts: 'q4g64' | 'q8', dense: 'bf16' | 'q8'): Variant {
  return {
    name,
    bits,
    async make(nano, root) {
      const destination = path.join(root, 'container');
      await convertCheckpoint({ source: nano, destination, experts, dense });
      return destination;
    },
  };
}

const VARIANTS: readonly Variant[] = [
  converted('q8', '8.25', 'q8', 'bf16'),
  rewritten('fp8', '8.00'),
  rewritten('nvfp4', '4.50'),
  converted('q4g64', '4.25', 'q4g64', 'bf16'),
  converted('q4g64, all else q8', '4.25', 'q4g64', 'q8'),
  rewritten('mxfp4', '4.25'),
  rewritten('int4-row', '4.1'),
  rewritten('int3-g64', '3.50'),
  rewritten('int2-row', '2.1'),
];

/** Reports of several texts as one: every token weighs the same. */
function together(reports: readonly DivergenceReport[]) {
  const tokens = reports.reduce((sum, report) => sum + report.tokens, 0);
  const mean = (value: (report: DivergenceReport) => number) =>
    reports.reduce((sum, report) => sum + value(report) * report.tokens, 0) / tokens;
  const agreement = mean(report => report.agreement);
  return {
    tokens,
    kl: mean(report => report.kl),
    kl99: Math.max(...reports.map(report => report.kl99)),
    agreement,
    interval: shareInterval(Math.round(agreement * tokens), tokens),
    pplRatio: Math.exp(mean(report => Math.log(report.ppl / report.referencePpl))),
  };
}

async function measure(variant: Variant, nano: string, reference: Engine, texts: readonly string[]): Promise<string> {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-quality-'));
  try {
    const model = await openEngine({ model: await variant.make(nano, root), ram: 1e9, context: 256 });
    try {
      const reports: DivergenceReport[] = [];
      for (const text of texts) reports.push(await evalDivergence(model, reference, text));
      const { kl, kl99, agreement, interval, pplRatio } = together(reports);
      const share = (x: number) => (100 * x).toFixed(2);
      const cells = [
        variant.name,
        variant.bits,
        kl.toFixed(5),
        kl99.toFixed(3),
        `${share(agreement)} (${share(interval.low)} to ${share(interval.high)})`,
        `${(100 * (pplRatio - 1)).toFixed(2)} %`,
      ];
      return `| ${cells.join(' | ')} |`;
    } finally {
      await model.close();
    }
  } finally {
    fs.rmSync(root, { recursive: true });
  }
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { nano: { type: 'string' }, help: { type: 'boolean' } } });
  if (values.help || values.nano === undefined) {
    console.log(USAGE);
    process.exitCode = values.help ? 0 : 2;
    return;
  }
  const { nano } = values;
  const read = (name: string) => fs.readFileSync(path.join(nano, 'eval', `${name}.txt`), 'utf8');
  const texts = TEXTS.map(name => read(name).slice(0, MAX_TEXT_CHARACTERS));
  const reference = await openEngine({ model: nano, ram: 1e9, context: 256 });
  try {
    console.log('| experts | bits | KL, nats per token | 99 % below | same top token, % (95 %) | perplexity |');
    console.log('|---|---|---|---|---|---|');
    for (const variant of VARIANTS) console.log(await measure(variant, nano, reference, texts));
  } finally {
    await reference.close();
  }
}
