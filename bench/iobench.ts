/** `npm run bench -- iobench`: random reads of a file by block size and depth, direct and through the page cache. */

import { spawnSync } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { StorageError, UsageError } from '../src/common/errors.ts';
import { formatBytes, KIB, MIB, parseSize } from '../src/common/units.ts';
import { type DiskMeasure, measureDisk } from '../src/storage/iobench.ts';

const BLOCKS = [64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB];
const DEPTHS = [1, 2, 4, 8, 16];
/** statfs type of tmpfs: a file there measures memory. */
const TMPFS = 0x01021994;
const WRITE_BYTES = 64 * MIB;

const HELP = `usage: npm run bench -- iobench [options]
  --file PATH     read this file instead of a temporary one
  --size SIZE     size of the temporary file (2G)
  --dir DIR       where to put it (the temporary directory, or here if that is in memory)
  --seconds N     per measurement (1)
  --blocks LIST   block sizes (64K,256K,1M,4M,8M)
  --depths LIST   reads in flight (1,2,4,8,16)
  --json          one JSON object`;

export interface IobenchRow extends DiskMeasure {
  readonly io: 'direct' | 'buffered';
  /** Buffered: the page cache was emptied first. */
  readonly cold: boolean;
  readonly blockBytes: number;
  readonly depth: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parse(args);
  if (values.help) {
    console.log(HELP);
    return;
  }
  const blocks = list(values.blocks, parseSize) ?? BLOCKS;
  const depths = list(values.depths, Number) ?? DEPTHS;
  const seconds = Number(values.seconds);
  if (!(seconds > 0) || !depths.every(depth => Number.isInteger(depth) && depth > 0)) {
    throw new UsageError('BAD_OPTION', '--seconds and --depths need positive numbers', { hint: HELP });
  }
  const own = values.file === undefined ? makeFile(values.dir ?? diskDirectory(), parseSize(values.size)) : null;
  try {
    const path = values.file ?? own!.path;
    const rows: IobenchRow[] = [];
    if (!values.json) console.log(`${path}, ${cpus()[0]?.model ?? 'unknown CPU'} (${availableParallelism()} threads)`);
    for (const io of ['direct', 'buffered'] as const) {
      const part = await measureAll(path, io, blocks, depths, seconds);
      rows.push(...part);
      if (!values.json) console.log(tableOf(part, io, blocks, depths));
    }
    if (values.json) console.log(JSON.stringify({ file: path, seconds, rows }));
  } finally {
    if (own) rmSync(own.directory, { recursive: true, force: true });
  }
}

function parse(args: string[]) {
  try {
    return parseArgs({
      args,
      options: {
        file: { type: 'string' },
        size: { type: 'string', default: '2G' },
        dir: { type: 'string' },
        seconds: { type: 'string', default: '1' },
        blocks: { type: 'string' },
        depths: { type: 'string' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new UsageError('BAD_OPTION', (error as Error).message, { hint: HELP });
  }
}

function list<T>(text: string | undefined, read: (item: string) => T): T[] | undefined {
  return text?.split(',').map(read);
}

async function measureAll(
  path: string,
  io: 'direct' | 'buffered',
  blocks: readonly number[],
  depths: readonly number[],
  seconds: number,
): Promise<IobenchRow[]> {
  const rows: IobenchRow[] = [];
  for (const blockBytes of blocks) {
    for (const depth of depths) {
      const cold = io === 'direct' || dropCache(path);
      const seed = rows.length + 1;
      const measure = await measureDisk({ path, blockBytes, depth, seconds, direct: io === 'direct', seed });
      rows.push({ io, cold, blockBytes, depth, ...measure });
    }
  }
  return rows;
}

function tableOf(
  rows: readonly IobenchRow[],
  io: string,
  blocks: readonly number[],
  depths: readonly number[],
): string {
  const cold = rows.every(row => row.cold) ? '' : ', page cache not emptied: partly memory speed';
  const lines = [`${io} reads, GB/s by reads in flight${cold}`];
  lines.push(
    ['block'.padStart(9), ...depths.map(depth => String(depth).padStart(7)), '  median and p99 read at depth 1'].join(
      '',
    ),
  );
  for (const block of blocks) {
    const line = depths.map(depth => rows.find(row => row.blockBytes === block && row.depth === depth)!);
    const speeds = line.map(row => (row.bytesPerSecond / 1e9).toFixed(2).padStart(7));
    const times = `  ${Math.round(line[0].medianReadUs)} us, ${Math.round(line[0].p99ReadUs)} us`;
    lines.push([`${block / KIB}K`.padStart(9), ...speeds, times].join(''));
  }
  return lines.join('\n');
}

/** A file of noise that never enters the page cache: written past it where the file system allows. */
function makeFile(parent: string, bytes: number): { directory: string; path: string } {
  const { bavail, bsize } = statfsSync(parent);
  if (bavail * bsize < bytes * 1.05) {
    throw new StorageError(
      'NO_SPACE',
      `${parent} has ${formatBytes(bavail * bsize)} free, ${formatBytes(bytes)} are needed`,
      {
        hint: 'use --dir, --size or --file',
      },
    );
  }
  const directory = mkdtempSync(join(parent, 'coli-iobench-'));
  const path = join(directory, 'noise.bin');
  const pages = WRITE_BYTES / 65536;
  const chunk = new Uint8Array(new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }).buffer);
  randomFillSync(chunk);
  const descriptor = openForWriting(path);
  try {
    for (let done = 0; done < bytes; done += WRITE_BYTES) {
      writeSync(descriptor, chunk, 0, Math.min(WRITE_BYTES, Math.floor((bytes - done) / 4096) * 4096));
    }
    fsyncSync(descriptor);
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    throw error;
  } finally {
    closeSync(descriptor);
  }
  return { directory, path };
}

function openForWriting(path: string): number {
  const flags = constants.O_WRONLY | constants.O_CREAT;
  try {
    return openSync(path, flags | (constants.O_DIRECT ?? 0));
  } catch {
    return openSync(path, flags);
  }
}

function diskDirectory(): string {
  return statfsSync(tmpdir()).type === TMPFS ? process.cwd() : tmpdir();
}

/** Empties the page cache of one file with coreutils' dd; false where that is not possible. */
function dropCache(path: string): boolean {
  if (!existsSync('/proc/self')) return false;
  const { status } = spawnSync('dd', [`if=${path}`, 'iflag=nocache', 'count=0'], { stdio: 'ignore' });
  return status === 0;
}
