/** The command line: verbs are files under commands/, loaded when they are called. */

import { Command, CommanderError, Option } from 'commander';
import { UsageError } from '../common/errors.ts';
import { addAttachFlags, checkAttachFlags } from './attach-options.ts';
import { packageVersion } from './model.ts';
import { addEngineFlags, addFlags, addSamplingFlags, notEmpty, size, wholeFrom1 } from './options.ts';
import { writeLine } from './output.ts';
import { checkServeFlags, portInUse, SERVE_FLAGS } from './serve-options.ts';

export const EXIT_USAGE = 2;

const QUIET = ['--quiet', 'no notes on standard error'] as const;
const MODEL_ARGUMENT = 'directory, .gguf file, or ORG/NAME[@REV] of the cache';
const JSON_FLAG = ['--json', 'print one JSON object'] as const;

const MORE =
  'The commands by example, and what error codes mean: docs/quickstart.md\nThe server: docs/server.md; its API: docs/api.md';
const examples = (...lines: string[]) => `\nExamples:\n${lines.map(line => `  ${line}\n`).join('')}\n${MORE}`;

/** Runs one command line; returns the exit code. Throws UsageError for a wrong one. */
export async function runProgram(args: readonly string[]): Promise<number> {
  let code = 0;
  let complaint = '';
  const program = buildProgram(
    exitCode => {
      code = exitCode;
    },
    text => {
      complaint += text;
    },
  );
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return 0;
    if (error.code === 'commander.help') {
      // No command was given: the help is the answer, but not what was asked for.
      process.stderr.write(complaint);
      return EXIT_USAGE;
    }
    throw usageError(error, calledName(program, args));
  }
  return code;
}

/** `complain` gets what commander would write to stderr. */
export function buildProgram(done: (exitCode: number) => void, complain: (text: string) => void = () => {}): Command {
  const program = new Command('coli')
    .description('Runs Mixture-of-Experts language models that are larger than memory.')
    .version(packageVersion())
    .exitOverride()
    .configureOutput({ writeOut: text => writeLine(text.trimEnd()), writeErr: complain })
    // The column of commands is wide; without this their descriptions would not be wrapped at 80 columns.
    .configureHelp({ minWidthToWrap: 20 })
    .showSuggestionAfterError(true)
    .addHelpText('after', examples('coli run "What does grep do?"', 'coli run --help'));

  const run = program
    .command('run')
    .description('answer one prompt')
    .argument(
      '[prompt...]',
      'words; or - alone, or a pipe and no words, for standard input (with words it is not read)',
    );
  addSamplingFlags(addEngineFlags(run))
    .option('--raw', 'continue the text as it is, without the chat template')
    .option('--profile', 'tell where the time went and what limits the speed, after some seconds of measuring')
    .option(...JSON_FLAG)
    .option(...QUIET)
    .addHelpText('after', examples('coli run --temperature 0 "What does grep do?"', 'coli run --raw - < text.txt'))
    .action(async (words, flags) => done(await (await import('./commands/run.ts')).run(words, flags)));

  const chat = program.command('chat').description('talk with the model; from a pipe, every line is one message');
  addSamplingFlags(addEngineFlags(addAttachFlags(chat)))
    .option(...QUIET)
    .addHelpText('after', examples('coli chat --model DIR --ram 4G', 'coli chat --attach http://127.0.0.1:8080'))
    .action(async flags => {
      checkAttachFlags(chat);
      done(await (await import('./commands/chat.ts')).chat(flags));
    });

  addFlags(
    addEngineFlags(program.command('serve').description('answer requests over HTTP: OpenAI and Anthropic APIs')),
    SERVE_FLAGS,
  )
    .addHelpText('after', examples('coli serve --model DIR --slots 4', 'coli serve --port 0 --ram 4G'))
    .action(async flags => done(await (await import('./commands/serve.ts')).serve(flags)));
  program
    .command('stop')
    .description('end a server that coli serve started')
    .option('--port <n>', 'which one, when there are several', portInUse)
    .addHelpText('after', examples('coli stop', 'coli stop --port 8080'))
    .action(async flags => done(await (await import('./commands/stop.ts')).stop(flags)));

  addEngineFlags(program.command('info').description('describe the model, the machine and what goes where'), [
    '--trace',
  ])
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli info --model DIR --ram 4G'))
    .action(async flags => done(await (await import('./commands/info.ts')).modelInfo(flags)));

  addEngineFlags(program.command('tune').description('find what makes this model faster on this machine, and keep it'))
    .option('--minutes <n>', 'stop measuring after this time', wholeFrom1('--minutes'), 10)
    .option('--tokens <n>', 'tokens of each measured answer', wholeFrom1('--tokens'), 32)
    .option('--pairs <n>', 'runs with and without each setting', wholeFrom1('--pairs'), 4)
    .addOption(
      new Option('--prompts <file>', 'one prompt on each line (default: four of our own)').argParser(
        notEmpty('--prompts'),
      ),
    )
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli tune --model DIR --ram 16G', 'coli tune --model DIR --minutes 30'))
    .action(async flags => done(await (await import('./commands/tune.ts')).tune(flags)));

  addEngineFlags(program.command('doctor').description('look for what is wrong with the machine and the model'), [
    '--trace',
  ])
    .option('--deep', 'read every byte: hashes, and numbers that are none')
    .option('--quick', 'do not measure the disk')
    .option('--slots <n>', 'conversations in memory, as for coli serve (default: 1)', wholeFrom1('--slots'))
    .addOption(new Option('--kv <encoding>', 'keys and values in memory (default: f32)').choices(['f32', 'bf16']))
    .addOption(new Option('--kv-dir <dir>', 'look at this directory of coli serve too').argParser(notEmpty('--kv-dir')))
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli doctor --model DIR --ram 4G', 'coli doctor --model ORG/NAME --deep'))
    .action(async flags => done(await (await import('./commands/doctor.ts')).doctor(flags)));

  addPlanCommand(program, done);

  const pull = program
    .command('pull')
    .description('fetch a model of the hub into the cache that all its tools share')
    .argument('<name>', 'ORG/NAME, or ORG/NAME@REV for a branch, a tag or a commit')
    .argument('[destination]', 'with --convert: new directory for the container')
    .addOption(
      new Option('--include <glob>', 'weights to fetch in place of the safetensors files; may be repeated').argParser(
        (text: string, previous: string[] = []) => [...previous, notEmpty('--include')(text)],
      ),
    )
    .addOption(
      new Option('--dest <dir>', 'put plain files there instead of into the cache').argParser(notEmpty('--dest')),
    )
    .option('--convert', 'write a container instead: each file is converted as it comes, then taken away');
  addConvertFlags(pull, 'with --convert: ')
    .option(...JSON_FLAG)
    .addHelpText(
      'after',
      examples('coli pull allenai/OLMoE-1B-7B-0924-Instruct', "coli pull ORG/NAME --include '*Q4_K_M*.gguf'"),
    )
    .action(async (name, destination, flags) =>
      done(await (await import('./commands/pull.ts')).pull(name, destination, flags)),
    );
  program
    .command('list')
    .description('the models in the cache')
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli list', 'coli list --json'))
    .action(async flags => done(await (await import('./commands/list.ts')).list(flags)));
  program
    .command('rm')
    .description('take a model out of the cache')
    .argument('<name>', 'ORG/NAME for all its revisions, or ORG/NAME@REV')
    .option('--yes', 'do not ask')
    .addHelpText('after', examples('coli rm ORG/NAME', 'coli rm ORG/NAME@REV --yes'))
    .action(async (name, flags) => done(await (await import('./commands/rm.ts')).rm(name, flags)));

  program
    .command('trace')
    .description('look at routing traces, which --trace records')
    .addHelpText('after', examples('coli run --trace FILE "What does grep do?"', 'coli trace replay FILE'))
    .command('replay')
    .description('what each policy would have found in memory, and the most that any could')
    .argument('<file>', 'a file that --trace has written')
    .addOption(
      new Option('--slots <n,n,...>', 'expert slots (default: 10, 25, 50 and 75 % of all experts)').argParser(
        slotCounts,
      ),
    )
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli trace replay FILE', 'coli trace replay FILE --slots 64,128 --json'))
    .action(async (file, flags) => done(await (await import('./commands/trace.ts')).replayTrace(file, flags)));

  const evaluate = program
    .command('eval')
    .description('compare with references, measure perplexity and answers')
    .addHelpText('after', examples('coli eval ppl --model DIR --text FILE'));
  const oracle = evaluate.command('oracle').description('compare with a reference pack, layer by layer');
  addEngineFlags(oracle.argument('<dir>', 'checkpoint with reference.safetensors and reference.json'), ['--model'])
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli eval oracle test/oracles/olmoe --activations exact'))
    .action(async (dir, flags) => done(await (await import('./commands/eval-oracle.ts')).oracle(dir, flags)));
  addEngineFlags(evaluate.command('ppl').description('perplexity of a text'))
    .requiredOption('--text <file>', 'UTF-8 text (required)')
    .option('--window <tokens>', 'predictions per window (default: 256)', wholeFrom1('--window'))
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli eval ppl --model DIR --text FILE'))
    .action(async flags => done(await (await import('./commands/eval-ppl.ts')).perplexity(flags)));

  addEngineFlags(evaluate.command('kl').description('how far a model is from the one that it was made from'))
    .requiredOption('--reference <model>', 'the model to compare with (required)')
    .requiredOption('--text <file>', 'UTF-8 text (required)')
    .option('--window <tokens>', 'predictions per window (default: 128)', wholeFrom1('--window'))
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli eval kl --model CONVERTED --reference SOURCE --text FILE'))
    .action(async flags => done(await (await import('./commands/eval-kl.ts')).divergence(flags)));
  addEngineFlags(evaluate.command('choice').description('multiple-choice questions by log-likelihood'))
    .requiredOption('--task <file>', 'lines of {"ctx": ..., "choices": [...], "gold": 0} (required)')
    .option('--limit <n>', 'only the first questions', wholeFrom1('--limit'))
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli eval choice --model DIR --task arc_easy.jsonl --limit 200'))
    .action(async flags => done(await (await import('./commands/eval-choice.ts')).choice(flags)));

  addMirrorCommands(program, done);

  const convert = program
    .command('convert')
    .description('rewrite a checkpoint into the container that reads fastest')
    .argument('<source>', 'model directory, GGUF file, or ORG/NAME[@REV] to convert while it comes from the hub')
    .argument('<destination>', 'new directory')
    .addOption(
      new Option('--include <glob>', 'weights of the hub to convert; may be repeated').argParser(
        (text: string, previous: string[] = []) => [...previous, notEmpty('--include')(text)],
      ),
    );
  addConvertFlags(convert)
    .option(...JSON_FLAG)
    .addHelpText(
      'after',
      examples('coli convert SOURCE TARGET --dry-run', 'coli convert allenai/OLMoE-1B-7B-0924-Instruct TARGET'),
    )
    .action(async (source, destination, flags) =>
      done(await (await import('./commands/convert.ts')).convert(source, destination, flags)),
    );
  return program;
}

function addPlanCommand(program: Command, done: (exitCode: number) => void): void {
  const plan = program
    .command('plan')
    .description('tell whether the model fits, how fast it will be, and what limits it');
  addEngineFlags(plan, ['--trace', '--prefetch', '--verify']);
  // what a server takes memory for
  addFlags(
    plan,
    SERVE_FLAGS.filter(({ flags }) => flags.startsWith('--kv-dir')),
  )
    .option('--slots <n>', 'conversations in memory (default: 1)', wholeFrom1('--slots'))
    .addOption(new Option('--kv <encoding>', 'keys and values in memory (default: f32)').choices(['f32', 'bf16']))
    .option('--serve', 'for coli serve, which needs more memory')
    .option('--prompt-tokens <n>', 'prompt whose time is estimated (default: 512)', wholeFrom1('--prompt-tokens', 512))
    .option('--measure', 'measure disk and processor anew, for some seconds')
    .option('--no-measure', 'use only what was measured before')
    .addOption(new Option('--out <file>', 'write the plan there, for --plan').argParser(notEmpty('--out')))
    .option(...JSON_FLAG)
    .addHelpText(
      'after',
      examples('coli plan --model DIR --ram 16G --ctx 8192', 'coli plan --serve --slots 4 --out plan.json'),
    )
    .action(async flags => {
      if (given.size > 1) {
        throw new UsageError('BAD_USAGE', '--measure and --no-measure contradict each other', {
          hint: 'leave one of the two out',
        });
      }
      checkServeFlags(flags);
      done(await (await import('./commands/plan.ts')).plan(flags));
    });
  // commander itself lets the last one win
  const given = new Set<string>();
  for (const name of ['measure', 'no-measure']) plan.on(`option:${name}`, () => given.add(name));
}

function addMirrorCommands(program: Command, done: (exitCode: number) => void): void {
  const mirror = program
    .command('mirror')
    .description('copies of a model on another drive, to be read from both (--mirror)')
    .addHelpText(
      'after',
      examples('coli mirror plan MODEL /mnt/fast', 'coli mirror stage MODEL /mnt/fast --budget 200G'),
    );
  const action = (name: string, help: string) =>
    mirror.command(name).description(help).argument('<model>', MODEL_ARGUMENT).argument('<dir>', 'the mirror');
  const choosing = (command: Command) =>
    command
      .addOption(
        new Option('--budget <size>', 'most that the mirror may take (default: what is free)').argParser(
          size('--budget'),
        ),
      )
      .addOption(new Option('--reserve <size>', 'leave so much free (default: 10G)').argParser(size('--reserve')))
      .addOption(
        new Option('--usage <file>', 'history of use, or off (default: what runs have left)').argParser(
          notEmpty('--usage'),
        ),
      )
      .option(...JSON_FLAG);
  choosing(action('plan', 'tell which files would be copied, and what they would serve'))
    .addHelpText('after', examples('coli mirror plan MODEL /mnt/fast --budget 200G'))
    .action(async (model, dir, flags) =>
      done(await (await import('./commands/mirror.ts')).mirrorPlan(model, dir, flags)),
    );
  choosing(action('stage', 'copy them, and read back what was written; continues after any interruption'))
    .addHelpText('after', examples('coli mirror stage MODEL /mnt/fast --budget 200G'))
    .action(async (model, dir, flags) =>
      done(await (await import('./commands/mirror.ts')).mirrorStage(model, dir, flags)),
    );
  action('verify', 'read all of the mirror and compare it with its receipt, or with the model')
    .option(...JSON_FLAG)
    .addHelpText('after', examples('coli mirror verify MODEL /mnt/fast'))
    .action(async (model, dir, flags) =>
      done(await (await import('./commands/mirror.ts')).mirrorVerify(model, dir, flags)),
    );
}

/** Of convert, and of pull with --convert. */
function addConvertFlags(command: Command, when = ''): Command {
  return command
    .addOption(
      new Option(
        '--experts <encoding>',
        `${when}encoding of the experts (default: q4g64); source: as they are`,
      ).choices(['q4g64', 'q8', 'bf16', 'source']),
    )
    .addOption(
      new Option('--dense <encoding>', `${when}encoding of everything else (default: q8)`).choices(['q8', 'bf16']),
    )
    .option('--dry-run', 'print the plan and write nothing');
}

/** "64,128": one or more numbers. */
function slotCounts(text: string): number[] {
  return text.split(',').map(wholeFrom1('--slots'));
}

/** "coli eval ppl": the command that the first words name, as far as there is one. */
function calledName(program: Command, args: readonly string[]): string {
  let command = program;
  const names = [program.name()];
  for (const word of args) {
    const next = command.commands.find(each => each.name() === word);
    if (!next) break;
    command = next;
    names.push(word);
  }
  return names.join(' ');
}

/** Commander's message as one line with a next step; `name` is that of the command whose help is one. */
function usageError(error: CommanderError, name: string): UsageError {
  const [first, ...rest] = error.message.replace(/^error: /, '').split('\n');
  const suggestion = rest
    .join(' ')
    .replace(/^\(|\)$/g, '')
    .replace(/^Did/, 'did');
  return new UsageError('BAD_USAGE', first.replace(/\.$/, ''), { hint: suggestion || `see ${name} --help` });
}
