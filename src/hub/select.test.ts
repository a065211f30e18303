import { expect, test } from 'vitest';
import type { HubFile } from './hub-file.ts';
import { selectFiles } from './select.ts';

const file = (path: string): HubFile => ({ path, bytes: 1, sha256: null, gitSha1: 'a'.repeat(40) });
const files = (...paths: string[]) => paths.map(file);

function chosen(paths: string[], include?: string[]): string[] {
  return selectFiles(files(...paths), include).chosen.map(({ path }) => path);
}

const SMALL = [
  'config.json',
  'tokenizer.json',
  'tokenizer.model',
  'merges.txt',
  'chat_template.jinja',
  'LICENSE',
  'README.md',
];

test('weights once, what belongs to them, and nothing of other tools', () => {
  const weights = [
    'model-00001-of-00002.safetensors',
    'model-00002-of-00002.safetensors',
    'model.safetensors.index.json',
  ];
  const others = [
    'pytorch_model-00001-of-00002.bin',
    'consolidated.safetensors',
    'consolidated.00.pth',
    'model-Q4_K_M.gguf',
    'onnx/model.onnx',
    'original/model.safetensors',
    'modeling_x.py',
    'figure.png',
    '.gitattributes',
  ];
  const selection = selectFiles(files(...SMALL, ...weights, ...others));
  expect(selection.chosen.map(({ path }) => path)).toEqual([...SMALL, ...weights]);
  const skipped = Object.fromEntries(
    selection.skipped.map(({ reason, files: left }) => [reason, left.map(each => each.path)]),
  );
  expect(skipped).toEqual({
    'weights in forms that are not read, beside safetensors': [
      'pytorch_model-00001-of-00002.bin',
      'consolidated.00.pth',
    ],
    'the same weights as in the other safetensors files': ['consolidated.safetensors'],
    'gguf files beside safetensors': ['model-Q4_K_M.gguf'],
    'in subdirectories, where no engine looks': ['onnx/model.onnx', 'original/model.safetensors'],
    'nothing that an engine reads': ['modeling_x.py', 'figure.png', '.gitattributes'],
  });
});

test('consolidated files alone are the weights', () => {
  expect(chosen(['consolidated.safetensors', 'params.json'])).toEqual(['consolidated.safetensors', 'params.json']);
});

test('patterns replace the weights; small files still come', () => {
  const paths = [
    'config.json',
    'a-Q4_K_M.gguf',
    'a-Q8_0.gguf',
    'model.safetensors',
    'BF16/a-00001-of-00002.gguf',
    'BF16/a-00002-of-00002.gguf',
  ];
  expect(chosen(paths, ['*Q4_K_M*'])).toEqual(['config.json', 'a-Q4_K_M.gguf']);
  expect(chosen(paths, ['BF16/*', 'model.*'])).toEqual(['config.json', 'model.safetensors', ...paths.slice(4)]);
});

test.each<[string, string[], string[] | undefined, string, RegExp]>([
  ['GGUF alone', ['x-Q4_K_M-00001-of-00003.gguf'], undefined, 'NO_WEIGHTS', /--include 'x-Q4_K_M-\*-of-00003\.gguf'/],
  ['only in a subdirectory', ['original/model.safetensors'], undefined, 'NO_WEIGHTS', /--include 'DIRECTORY/],
  ['only what cannot be read', ['pytorch_model.bin'], undefined, 'NO_WEIGHTS', /another repository/],
  ['nothing at all', [], undefined, 'NO_WEIGHTS', /another repository/],
  ['a pattern for nothing', ['model.safetensors'], ['*.gguf'], 'INCLUDE_MATCHES_NOTHING', /"model\.safetensors"/],
])('%s is refused with what there is', (_, paths, include, code, hint) => {
  expect(() => chosen(paths, include)).toThrow(expect.objectContaining({ code, hint: expect.stringMatching(hint) }));
});
