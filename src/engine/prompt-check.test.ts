import { describe, expect, test } from 'vitest';
import { checkPrompt, refuseHugeText } from './prompt-check.ts';

const limits = { context: 100, maxContext: 200, vocabSize: 50 };

describe('ids', () => {
  test('leave the rest of the context to the answer', () => {
    expect(checkPrompt([1, 2, 3], limits)).toBe(97);
    expect(checkPrompt(new Array(99).fill(0), limits)).toBe(1);
  });

  test.each([
    [[], 'EMPTY_PROMPT'],
    [[50], 'BAD_TOKEN_ID'],
    [[-1], 'BAD_TOKEN_ID'],
    [[1.5], 'BAD_TOKEN_ID'],
    [new Array(100).fill(0), 'CONTEXT_EXCEEDED'],
  ])('%j', (ids, code) => {
    expect(() => checkPrompt(ids, limits)).toThrow(expect.objectContaining({ code }));
  });

  test('a larger context is suggested only where the model has one', () => {
    const hint = (maxContext: number) => {
      try {
        checkPrompt(new Array(100).fill(0), { ...limits, maxContext });
      } catch (error) {
        return (error as { hint: string }).hint;
      }
      return null;
    };
    expect(hint(200)).toContain('--ctx');
    expect(hint(100)).not.toContain('--ctx');
  });
});

describe('a text that no context holds', () => {
  const huge = 'x'.repeat(70_000);
  const refuse = (prompt: Parameters<typeof refuseHugeText>[0]) => () => refuseHugeText(prompt, limits, 16);

  test('is refused unread, wherever it stands', () => {
    const user = { role: 'user', content: 'Hi' };
    const code = expect.objectContaining({ code: 'CONTEXT_EXCEEDED' });
    expect(refuse({ text: huge })).toThrow(code);
    expect(refuse({ messages: [{ role: 'user', content: huge }] })).toThrow(code);
    expect(refuse({ messages: [user], tools: [{ function: { description: huge } }] })).toThrow(code);
    expect(
      refuse({ messages: [{ role: 'assistant', content: null, tool_calls: [{ arguments: { a: huge } }] }] }),
    ).toThrow(code);
  });

  test('anything that could fit is read', () => {
    expect(refuse({ text: 'x'.repeat(65_536) })).not.toThrow();
    expect(refuse({ ids: [1] })).not.toThrow();
    expect(() => refuseHugeText({ text: huge }, limits, 1000)).not.toThrow();
  });
});
