import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'scripts/**/*.test.ts', 'bench/**/*.test.ts'],
    reporters: ['default', './scripts/closing-line-reporter.ts'],
    globalSetup: './test/support/own-directories.ts',
    // tests of the history of use switch it on, with files of their own
    env: { COLI_USAGE: 'off' },
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
