/** Models behind unusual paths, which are only ever read, and what the commands say about models that cannot be run. */

import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, lstatSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { copyPack } from '../hostile/fixtures.ts';
import { packAsGguf } from '../support/gguf-packs.ts';
import { writeGguf } from '../support/gguf-writer.ts';
import { LoosePack } from '../support/loose-pack.ts';
import { packDirectory } from '../support/packs.ts';
import { fileDirectory } from '../support/serve.ts';

const root = fileDirectory();
const ENGINE = ['--ram', '1G', '--ctx', '64', '--threads', '1'];
const ANSWER = ['--raw', '--json', '--temperature', '0', '--max-tokens', '4', '--ignore-eos', 'a b'];

function coli(args: readonly string[], cwd = process.cwd()) {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1' };
  for (const name of ['COLI_MODEL', 'COLI_DEBUG']) delete env[name];
  return spawnSync(process.execPath, [path.resolve('bin/coli.js'), ...args], { encoding: 'utf8', env, cwd });
}

function answer(model: string, cwd?: string) {
  const { status, stdout, stderr } = coli(['run', '--model', model, ...ENGINE, ...ANSWER], cwd);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return JSON.parse(stdout).token_ids;
}

/** Names, sizes and times of all that is in a directory. */
function stateOf(directory: string): unknown {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .sort()
    .map(name => {
      const { size, mtimeMs, ctimeMs, mode } = lstatSync(path.join(directory, name));
      return { name, size, mtimeMs, ctimeMs, mode };
    });
}

describe('a path', () => {
  const UNUSUAL = '  two spaces, Ünïcødé 模型 🐦 #1 %20 $HOME \'q" \\n';
  const directory = path.join(root, UNUSUAL, 'qwen');
  const file = path.join(root, UNUSUAL, 'a model.v1.gguf');
  let expected: { directory: number[]; file: number[] };

  beforeAll(() => {
    copyPack('qwen36', directory);
    const plain = writeGguf(path.join(root, 'plain.gguf'), packAsGguf(packDirectory('qwen3-moe'), 'qwen3moe'));
    expected = { directory: answer(packDirectory('qwen36')), file: answer(plain) };
    writeGguf(file, packAsGguf(packDirectory('qwen3-moe'), 'qwen3moe'));
    for (const name of readdirSync(directory)) chmodSync(path.join(directory, name), 0o444);
    chmodSync(file, 0o444);
    chmodSync(directory, 0o555);
    chmodSync(path.dirname(directory), 0o555);
    return () => {
      for (const each of [directory, path.dirname(directory)]) chmodSync(each, 0o755);
    };
  });

  test('with spaces, other scripts and signs, in directories that cannot be written: nothing is', () => {
    const before = stateOf(path.dirname(directory));
    expect(answer(directory)).toEqual(expected.directory);
    expect(answer(file)).toEqual(expected.file);
    for (const model of [directory, file]) {
      const { status, stdout } = coli(['info', '--model', model, ...ENGINE, '--json']);
      expect(status).toBe(0);
      expect(JSON.parse(stdout).model).toBe(model);
    }
    expect(stateOf(path.dirname(directory))).toEqual(before);
  });

  test('through links, to the directory, to each file, and relative', () => {
    const links = path.join(root, 'links');
    const blobs = path.join(links, 'snapshots', 'main');
    mkdirSync(blobs, { recursive: true });
    symlinkSync(directory, path.join(links, 'whole'));
    // as in download caches: every file is a link to another name
    for (const [i, name] of readdirSync(directory).entries()) {
      symlinkSync(path.join(directory, name), path.join(links, `blob-${i}`));
      symlinkSync(path.join('..', '..', `blob-${i}`), path.join(blobs, name));
    }
    symlinkSync(file, path.join(links, 'linked.gguf'));
    expect(answer(path.join(links, 'whole'))).toEqual(expected.directory);
    expect(answer(path.join('snapshots', 'main'), links)).toEqual(expected.directory);
    expect(answer(path.join(links, 'linked.gguf'))).toEqual(expected.file);
  });
});

describe('what cannot be run is told in one line, the same by every command', () => {
  /** A changed pack, what its refusal says, and what its hint says to do. */
  const REFUSALS: { what: string; pack: string; change: (pack: LoosePack) => void; says: RegExp; hint: RegExp }[] = [
    {
      what: 'experts that were pruned',
      pack: 'glm4-moe',
      change: pack => {
        pack.text.n_routed_experts = 8;
      },
      says: /8 experts by config\.json, 16 router rows and 16 experts with tensors/,
      hint: /take both from one place/,
    },
    {
      what: 'an unknown family',
      pack: 'mixtral',
      change: pack => {
        pack.config.model_type = 'llama\u001b[31m';
      },
      says: /model_type "llama.*known: olmoe, /,
      hint: /known family/,
    },
    {
      what: 'scales that are missing',
      pack: 'deepseek-v3-fp8',
      change: pack => pack.remove(/experts\.5\.up_proj\.weight_scale_inv$/),
      says: /experts\.5\.up_proj\.weight_scale_inv" is missing/,
      hint: /incomplete/,
    },
    {
      what: 'rotary scaling that is not known',
      pack: 'minimax-m2',
      change: pack => {
        pack.config.rope_scaling = { rope_type: 'llama3', factor: 8 };
      },
      says: /rope_scaling\.rope_type: .*default, yarn.*"llama3"/,
      hint: /published minimax_m2/,
    },
  ];

  test.each(REFUSALS)('$what', ({ what, pack: name, change, says, hint }) => {
    const pack = new LoosePack(packDirectory(name));
    change(pack);
    const model = pack.writeHeaders(path.join(root, what));
    for (const file of ['reference.json', 'reference.safetensors']) {
      copyFileSync(path.join(packDirectory(name), file), path.join(model, file));
    }
    const commands = [
      ['info', '--model', model],
      ['run', '--model', model, 'hi'],
      ['eval', 'oracle', model],
    ];
    const lines = commands.map(command => {
      const { status, stdout, stderr } = coli(command);
      expect({ status, stdout }, command[0]).toEqual({ status: 1, stdout: '' });
      return stderr;
    });
    const [line] = lines;
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    expect(line).toMatch(/^coli: [^\u0000-\u001f]+\n$/);
    expect(line).toMatch(says);
    expect(line.slice(line.lastIndexOf('; ') + 2)).toMatch(hint);
    expect(new Set(lines).size, lines.join('')).toBe(1);
  });

  test('a pack that is right, without its reference', () => {
    const model = copyPack('qwen3-moe', path.join(root, 'no reference'));
    const { status, stdout, stderr } = coli(['eval', 'oracle', model]);
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toMatch(/^coli: .*reference\.(?:json|safetensors).*; .+\n$/);
  });
});
