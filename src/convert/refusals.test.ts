import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyPack, FIRST_SHARD, INDEX, temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { writeSafetensors } from '../formats/safetensors-writer.ts';
import { convertCheckpoint } from './convert.ts';
import { LOCK_FILE } from './lock.ts';
import type { ConvertOptions } from './types.ts';

type LocalOptions = ConvertOptions & { source: string };

function optionsFor(source: string, more: Partial<LocalOptions> = {}): LocalOptions {
  return { source, destination: join(temporaryDirectory(), 'out'), experts: 'q4g64', dense: 'q8', ...more };
}

const refused = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) });

function editJson(path: string, edit: (json: Record<string, unknown>) => void): void {
  const json = JSON.parse(fs.readFileSync(path, 'utf8'));
  edit(json);
  fs.writeFileSync(path, JSON.stringify(json));
}

describe('before the first write', () => {
  async function expectRefusal(options: ConvertOptions, code: string, message: RegExp): Promise<void> {
    const existed = fs.existsSync(options.destination) ? fs.readdirSync(options.destination) : null;
    await expect(convertCheckpoint(options)).rejects.toEqual(refused(code, message));
    const exists = fs.existsSync(options.destination) ? fs.readdirSync(options.destination) : null;
    expect(exists).toEqual(existed);
  }

  test('a tensor that the family does not know', async () => {
    const source = copyPack();
    const bytes = new Uint8Array(4);
    writeSafetensors(join(source, 'extra.safetensors'), [
      { name: 'model.extra.weight', dtype: 'F32', shape: [1], bytes },
    ]);
    editJson(join(source, INDEX), json => {
      (json.weight_map as Record<string, string>)['model.extra.weight'] = 'extra.safetensors';
    });
    await expectRefusal(
      optionsFor(source),
      'UNKNOWN_TENSORS',
      /holds 1 tensor that its config\.json has no use for: "model\.extra\.weight"/,
    );
  });

  test('an unknown family, an absent layer, an encoding that does not exist', async () => {
    const unknown = copyPack();
    editJson(join(unknown, 'config.json'), json => {
      json.model_type = 'mamba9';
    });
    await expectRefusal(optionsFor(unknown), 'UNKNOWN_MODEL_TYPE', /mamba9.*olmoe/);
    const short = copyPack();
    editJson(join(short, 'config.json'), json => {
      json.num_hidden_layers = 4;
    });
    await expectRefusal(optionsFor(short), 'TENSORS_MISSING', /absent layers: 3/);
    await expectRefusal(
      optionsFor(copyPack(), { experts: 'q2' as 'q8' }),
      'BAD_ENCODING',
      /experts cannot be q2.*q4g64/,
    );
    await expectRefusal(optionsFor(copyPack(), { dense: 'q4g64' as 'q8' }), 'BAD_ENCODING', /dense cannot be q4g64/);
  });

  test('too little space, with the numbers', async () => {
    const asked: string[] = [];
    const freeBytes = (directory: string): number => {
      asked.push(directory);
      return 1e6;
    };
    const options = optionsFor(copyPack(), { freeBytes });
    await expectRefusal(options, 'NO_SPACE', /needs 6\d\.\d MB and has 1\.00 MB free: 6\d\.\d MB short/);
    expect(asked).toEqual([join(options.destination, '..')]);
  });

  test('source and destination in one place, also through a link', async () => {
    const source = copyPack();
    await expectRefusal(optionsFor(source, { destination: source }), 'SAME_DIRECTORY', /are both/);
    const link = join(temporaryDirectory(), 'link');
    fs.symlinkSync(source, link);
    await expectRefusal(optionsFor(source, { destination: link }), 'SAME_DIRECTORY', /are both/);
  });

  test('a destination that holds something', async () => {
    const options = optionsFor(copyPack());
    fs.mkdirSync(options.destination);
    fs.writeFileSync(join(options.destination, 'holiday.jpg'), 'x');
    await expectRefusal(options, 'DESTINATION_NOT_EMPTY', /already holds "holiday\.jpg"/);
    await expect(convertCheckpoint(options)).rejects.toMatchObject({ hint: expect.not.stringContaining('remove') });
    const file = join(temporaryDirectory(), 'file');
    fs.writeFileSync(file, '');
    await expect(convertCheckpoint({ ...options, destination: file })).rejects.toEqual(
      refused('DESTINATION_IS_A_FILE', /is a file/),
    );
  });

  test('a destination below a file', async () => {
    const file = join(temporaryDirectory(), 'file');
    fs.writeFileSync(file, '');
    const options = optionsFor(copyPack(), { destination: join(file, 'deep', 'out') });
    await expectRefusal(options, 'DESTINATION_IS_A_FILE', /lies below .*file, which is a file/);
  });

  test.each([
    ['to nowhere', () => join(temporaryDirectory(), 'none'), 'ENOENT'],
    ['to itself', (link: string) => link, 'ELOOP'],
  ])('a destination that is or lies below a link %s', async (_, target, errno) => {
    const link = join(temporaryDirectory(), 'link');
    fs.symlinkSync(target(link), link);
    for (const destination of [link, join(link, 'out')]) {
      const options = optionsFor(copyPack(), { destination });
      await expectRefusal(options, 'DESTINATION_UNUSABLE', new RegExp(`${destination} cannot be written: ${errno}`));
    }
  });

  test('a destination with a name that no file system takes', async () => {
    const options = optionsFor(copyPack(), { destination: join(temporaryDirectory(), 'x'.repeat(300)) });
    await expectRefusal(options, 'DESTINATION_UNUSABLE', /ENAMETOOLONG/);
  });

  // root may write everywhere
  test.skipIf(process.getuid?.() === 0)('a destination in a directory that may not be written', async () => {
    const parent = temporaryDirectory();
    fs.chmodSync(parent, 0o500);
    await expectRefusal(
      optionsFor(copyPack(), { destination: join(parent, 'out') }),
      'DESTINATION_UNUSABLE',
      /EACCES.*/,
    );
    fs.chmodSync(parent, 0o700);
  });

  test('a destination that holds a finished container', async () => {
    const options = optionsFor(copyPack());
    await convertCheckpoint(options);
    await expectRefusal(options, 'DESTINATION_NOT_EMPTY', /a finished container/);
  });
});

describe('while writing', () => {
  test('a weight that is not finite stops the job with its tensor and place', async () => {
    const source = copyPack();
    const path = join(source, FIRST_SHARD);
    const bytes = fs.readFileSync(path);
    // Row 2, column 5 of the embedding, the first tensor of the file.
    const data = 8 + Number(bytes.readBigUInt64LE(0));
    bytes.writeUInt16LE(0x7fc0, data + (2 * 96 + 5) * 2);
    fs.writeFileSync(path, bytes);
    for (const dense of ['q8', 'bf16'] as const) {
      await expect(convertCheckpoint(optionsFor(source, { dense }))).rejects.toEqual(
        refused('WEIGHT_NOT_FINITE', /"model\.embed_tokens\.weight": embedding weight \(2, 5\)/),
      );
    }
  });

  test('what the file system refuses is told with the destination, and the lock is given back', async () => {
    const options = optionsFor(copyPack());
    const blocked = join(options.destination, 'coli.index.json.partial');
    let reports = 0;
    const onProgress = (): void => {
      if (reports++ === 0) fs.mkdirSync(blocked);
    };
    await expect(convertCheckpoint({ ...options, onProgress })).rejects.toEqual(
      refused('DESTINATION_UNUSABLE', /out cannot be written: EISDIR.*coli\.index\.json/),
    );
    expect(fs.existsSync(join(options.destination, LOCK_FILE))).toBe(false);
  });

  test('a source that changes is noticed before its shard counts', async () => {
    const options = optionsFor(copyPack());
    const onProgress = (): void => fs.utimesSync(join(options.source, FIRST_SHARD), 1, 1);
    await expect(convertCheckpoint({ ...options, onProgress })).rejects.toMatchObject({ code: 'MODEL_CHANGED' });
    expect(fs.readdirSync(options.destination).filter(name => name.endsWith('.safetensors'))).toEqual([]);
  });
});
