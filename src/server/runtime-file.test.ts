import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { processId } from '../common/process-lock.ts';
import { type RuntimeEntry, runningServers, runtimeDirectory, writeRuntimeFile } from './runtime-file.ts';
import { chooseServer, stopServerProcess } from './stop-server.ts';

function scratch(): string {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-test-'));
  onTestFinished(() => fs.rmSync(directory, { recursive: true }));
  return directory;
}

const entry = (more: Partial<RuntimeEntry> = {}): RuntimeEntry => ({
  ...processId(),
  host: '127.0.0.1',
  port: 8080,
  token: 't',
  model: 'm',
  graceMs: 100,
  ...more,
});

const mode = (file: string) => fs.statSync(file).mode & 0o777;

/** A process that ends when it is told to. */
async function victim(onTerm: string): Promise<{ pid: number; start: string | null; ended: Promise<unknown[]> }> {
  const script = `process.on('SIGTERM', () => { ${onTerm} }); console.log('up'); setInterval(() => {}, 1000)`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  await once(child.stdout, 'data');
  const stat = fs.readFileSync(`/proc/${child.pid}/stat`, 'utf8');
  return { pid: child.pid!, start: stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19], ended };
}

test('the directory is the user’s alone', () => {
  const base = scratch();
  const own = runtimeDirectory({ XDG_RUNTIME_DIR: base });
  expect(own).toBe(path.join(base, 'colibri'));
  expect(mode(own)).toBe(0o700);
  fs.chmodSync(own, 0o755);
  runtimeDirectory({ XDG_RUNTIME_DIR: base });
  expect(mode(own)).toBe(0o700);
  const temporary = runtimeDirectory({ XDG_RUNTIME_DIR: 'relative' }, base);
  expect(temporary).toBe(path.join(base, `colibri-${process.getuid!()}`));
});

test('a link or a file in its place is refused', () => {
  const base = scratch();
  fs.symlinkSync(scratch(), path.join(base, 'colibri'));
  const code = expect.objectContaining({ code: 'RUNTIME_DIRECTORY' });
  expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: base })).toThrow(code);
  expect(() => runtimeDirectory({ XDG_RUNTIME_DIR: path.join(base, 'missing') })).toThrow(code);
});

test('a file is private, read back, and gone afterwards', () => {
  const directory = scratch();
  const remove = writeRuntimeFile(directory, entry());
  expect(mode(path.join(directory, `${process.pid}.json`))).toBe(0o600);
  expect(runningServers(directory)).toEqual([entry()]);
  remove();
  expect(fs.readdirSync(directory)).toEqual([]);
});

test('files of processes that are gone, and what is no such file, are cleaned away', () => {
  const directory = scratch();
  const put = (name: string, content: string) => fs.writeFileSync(path.join(directory, name), content);
  // this number is taken, but by a process that started at another time
  put(`${process.pid}.json`, JSON.stringify(entry({ start: '1' })));
  put('999999999.json', JSON.stringify(entry({ pid: 999_999_999 })));
  put('1.json', JSON.stringify(entry()));
  put('2.json', '{');
  put('3.json', JSON.stringify({ ...entry({ pid: 3 }), port: 'x' }));
  fs.symlinkSync('/etc/passwd', path.join(directory, '4.json'));
  put('notes.txt', 'mine');
  expect(runningServers(directory)).toEqual([]);
  expect(fs.readdirSync(directory)).toEqual(['notes.txt']);
});

test('a server is chosen by its port, and by nothing when it is the only one', async () => {
  const directory = scratch();
  const code = (port?: number) => {
    try {
      return chooseServer(directory, port).port;
    } catch (error) {
      return (error as { code: string }).code;
    }
  };
  expect(code()).toBe('NO_SERVER');
  writeRuntimeFile(directory, entry());
  expect(code()).toBe(8080);
  expect(code(8080)).toBe(8080);
  expect(code(8081)).toBe('NO_SERVER');
  const { pid, start } = await victim('process.exit(0)');
  writeRuntimeFile(directory, entry({ pid, start, port: 8081 }));
  expect(code()).toBe('SEVERAL_SERVERS');
  expect(code(8081)).toBe(8081);
});

test('only the very process is signalled, and its end is waited for', async () => {
  const { pid, start, ended } = await victim('process.exit(7)');
  await stopServerProcess(entry({ pid, start: '1' }));
  expect(fs.existsSync(`/proc/${pid}`)).toBe(true);
  await stopServerProcess(entry({ pid, start }));
  expect(await ended).toEqual([7, null]);
});

test('one that does not stop is told', async () => {
  const { pid, start } = await victim('');
  const stuck = entry({ pid, start, graceMs: 0 });
  await expect(stopServerProcess(stuck, 60)).rejects.toMatchObject({ code: 'STOP_FAILED' });
});
