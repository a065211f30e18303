/** `npm run bench -- NAME [arguments]`: runs one benchmark of this folder. */

interface Benchmark {
  /** Prints its report; sets `process.exitCode` when its figures cannot be trusted. */
  run(args: string[]): Promise<void>;
}

const BENCHMARKS: Readonly<Record<string, { about: string; load: () => Promise<Benchmark> }>> = {
  iobench: {
    about: 'bytes per second that the disk gives, read as the engine reads',
    load: () => import('./iobench.ts'),
  },
  kernels: { about: 'GB/s and GMAC/s of every kernel', load: () => import('./kernels.ts') },
  decode: {
    about: 'tokens per second with experts on disk, as a part of the limit',
    load: () => import('./decode.ts'),
  },
  prefill: {
    about: 'prompt tokens per second, and how often each expert was read',
    load: () => import('./prefill.ts'),
  },
  prefetch: {
    about: 'tokens per second with and without guesses about the next layer, in turns',
    load: () => import('./prefetch.ts'),
  },
  profile: {
    about: 'where the time of a token goes, barrier, allocations, speed of memory',
    load: () => import('./profile.ts'),
  },
  overhead: { about: 'memory that this Node needs besides the arenas', load: () => import('./overhead.ts') },
  ceiling: {
    about: 'the highest resident set of a hard day, held against the plan',
    load: () => import('./ceiling.ts'),
  },
  peer: { about: 'this engine beside llama.cpp on the same weights', load: () => import('./peer/main.ts') },
  serve: {
    about: 'the server under load, or (--streams) its speed with streams side by side',
    load: () => import('./serve.ts'),
  },
  quality: { about: 'what encodings of the experts cost', load: () => import('./quality.ts') },
  synth: { about: 'writes a model of random weights and a given size', load: () => import('./synth.ts') },
};

const [name, ...args] = process.argv.slice(2);
const benchmark = Object.hasOwn(BENCHMARKS, name ?? '') ? BENCHMARKS[name] : undefined;
if (benchmark) {
  try {
    await (await benchmark.load()).run(args);
  } catch (error) {
    if (process.env.COLI_DEBUG || !(error instanceof Error)) throw error;
    console.error(`${name}: ${error.message}`);
    if ('hint' in error && error.hint) console.error(error.hint);
    process.exitCode = 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS') ? 2 : 1;
  }
} else {
  const asked = name === undefined || name === '--help' || name === 'help';
  console.error(asked ? 'usage: npm run bench -- NAME [options], or NAME --help' : `there is no benchmark "${name}"`);
  for (const [known, { about }] of Object.entries(BENCHMARKS)) console.error(`  ${known.padEnd(8)} ${about}`);
  process.exitCode = 2;
}
