import { expect, test } from 'vitest';
import { StopSignals } from './stop-signals.ts';

function signals() {
  let now = 0;
  const codes: number[] = [];
  const stop = new StopSignals(
    code => codes.push(code),
    () => now,
  );
  const send = (signal: 'SIGINT' | 'SIGTERM', ms: number) => {
    now += ms;
    stop.receive(signal);
  };
  return { stop, codes, send };
}

test('the first signal is told, the second ends the process with its own code', async () => {
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    const { stop, codes, send } = signals();
    send('SIGTERM', 1000);
    expect(await stop.first).toBe('SIGTERM');
    expect(codes).toEqual([]);
    send(signal, 1000);
    expect(codes).toEqual([code]);
  }
});

test('a signal that comes twice at once, from terminal and launcher, is one', () => {
  const { codes, send } = signals();
  send('SIGINT', 1000);
  send('SIGINT', 10);
  expect(codes).toEqual([]);
});
