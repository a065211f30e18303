import { expect, test } from 'vitest';
import { readAhead } from './read-ahead.ts';

test('a body that breaks: all bytes that came before, then the error, however slow they are taken', async () => {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({
    start: each => {
      controller = each;
    },
  });
  const taken: number[] = [];
  let signs = 0;
  const broken = Promise.withResolvers<void>();
  const reading = (async () => {
    for await (const [value] of readAhead(body, () => signs++)) {
      taken.push(value);
      // the first chunk is still being written when everything else happens
      if (taken.length === 1) await broken.promise;
    }
  })();
  for (let value = 1; value <= 5; value++) {
    controller.enqueue(Uint8Array.of(value));
    await new Promise(setImmediate);
  }
  controller.error(new Error('broken'));
  await new Promise(setImmediate);
  broken.resolve();
  await expect(reading).rejects.toThrow('broken');
  expect(taken).toEqual([1, 2, 3, 4, 5]);
  expect(signs).toBeGreaterThanOrEqual(10);
});

test('reading waits when it is far ahead, and the body is cancelled when nobody takes more', async () => {
  let pulled = 0;
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>(
    {
      pull: controller => {
        pulled++;
        controller.enqueue(new Uint8Array(2 ** 20));
      },
      cancel: () => {
        cancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  for await (const chunk of readAhead(body, () => {})) {
    expect(chunk).toHaveLength(2 ** 20);
    for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
    break;
  }
  expect(pulled).toBeLessThanOrEqual(18);
  expect(cancelled).toBe(true);
});
