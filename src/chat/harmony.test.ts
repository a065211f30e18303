import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ChatPiece } from './api.ts';
import { chooseFormat, formatNamed } from './formats.ts';
import { cutAt, type ParseOptions, piecesOf, TOOLS, withTokens } from './test-support.ts';

const harmony = formatNamed('harmony', true);
/** The prompt ends with `<|start|>assistant`. */
const begun = [['assistant']] as const;

/** Reasoning may come behind text, so the order of the pieces counts. */
function inOrder(pieces: readonly ChatPiece[]): [type: string, text: string][] {
  const parts: [string, string][] = [];
  for (const piece of pieces) {
    const last = parts.at(-1);
    if (piece.type === 'call') parts.push([`call ${piece.name}`, '']);
    else if (piece.type === 'arguments') last![1] += piece.text;
    else if (last?.[0] === piece.type) last[1] += piece.text;
    else parts.push([piece.type, piece.text]);
  }
  return parts;
}

const read = (answer: string, options: ParseOptions = {}) =>
  inOrder(piecesOf(harmony, [withTokens(harmony, answer)], { begun, ...options }));

const CALL = '{"city": "Zürich 🐀😀", "days": 2}';
const WHOLE =
  '<|channel|>analysis<|message|>I look. 🐀<|end|><|start|>assistant<|channel|>commentary<|message|>A moment.<|end|>' +
  `<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${CALL}<|call|>` +
  '<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>' +
  '<|start|>assistant<|channel|>final<|message|>Done: <b>1 < 2</b>\n<|return|>';
const PARTS = [
  ['reasoning', 'I look. 🐀'],
  ['text', 'A moment.'],
  ['call get_weather', CALL],
  ['call now', '{}'],
  ['text', 'Done: <b>1 < 2</b>\n'],
];

test('channels: reasoning, a preamble, calls with the recipient before and behind the channel, the answer', () => {
  expect(read(WHOLE)).toEqual(PARTS);
});

test('a whole answer, cut at every two places, is the same', () => {
  const answer = withTokens(harmony, WHOLE);
  for (let a = 0; a <= answer.length; a++) {
    for (const b of [a + 1, a + 9]) {
      const parts = cutAt(answer, [a, Math.min(b, answer.length)]);
      expect(inOrder(piecesOf(harmony, parts, { begun }))).toEqual(PARTS);
    }
  }
  expect(inOrder(piecesOf(harmony, answer.split(''), { begun, constrained: true }))).toEqual(PARTS);
});

describe('headers', () => {
  test.each([
    ['no channel', '<|message|>Hi', [['text', 'Hi']]],
    ['no header', 'Hi, assistant.', [['text', 'Hi, assistant.']]],
    ['a short answer without a header', 'a', [['text', 'a']]],
    ['a header of two lines', '<|channel|>final\n<|message|>Hi', [['text', '<|channel|>final\n<|message|>Hi']]],
    ['too many words', '<|channel|>final and so on', [['text', '<|channel|>final and so on']]],
    ['another role', '<|end|><|start|>user<|message|>Hi<|end|>', [['text', '<|start|>user<|message|>Hi']]],
    ['a forgotten start', '<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b', 'ab'],
    ['a forgotten end', '<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b', 'ab'],
    ['a type for the answer', '<|channel|>final <|constrain|>json<|message|>{}', [['text', '{}']]],
    ['cut', '<|channel|>ana', []],
    ['cut before the channel', '<|channel|>final<|message|>a<|end|><|start|>assis', [['text', 'a']]],
  ])('%s', (_, answer, parts) => {
    const both = [
      ['reasoning', 'a'],
      ['text', 'b'],
    ];
    expect(read(answer)).toEqual(parts === 'ab' ? both : parts);
  });

  test('markers that are spelled out are text, and so are markers inside a message', () => {
    const parser = harmony.parser({ tools: TOOLS, toolChoice: 'auto', startsInReasoning: false, begun });
    const pieces = [
      ...parser.push('', '<|channel|>'),
      ...parser.push('final', '<|message|>'),
      ...parser.push('a<|end|>b', '<|channel|>'),
      ...parser.push('c'),
      ...parser.end(),
    ];
    expect(inOrder(pieces)).toEqual([['text', 'a<|end|>b<|channel|>c']]);
  });

  test('what the prompt has written of the first message counts, and is not given again', () => {
    const open = [['assistant', '<|channel|>'], ['final', '<|message|>'], ['So ']] as const;
    expect(read('far.<|end|>', { begun: open })).toEqual([['text', 'far.']]);
    const thinking = [
      ['assistant', '<|channel|>'],
      ['analysis', '<|message|>'],
    ] as const;
    const parser = harmony.parser({ tools: [], toolChoice: 'auto', startsInReasoning: false, begun: thinking });
    expect([parser.inReasoning, parser.push('a', '<|end|>'), parser.inReasoning]).toEqual([
      true,
      [{ type: 'reasoning', text: 'a' }],
      false,
    ]);
    expect(read('<|end|>x', { begun: [['assistant to=functions.now', '<|channel|>'], ['commentary']] })).toEqual([
      ['text', 'x'],
    ]);
  });

  test('messages of one kind are paragraphs', () => {
    const message = (channel: string, text: string) =>
      `<|channel|>${channel}<|message|>${text}<|end|><|start|>assistant`;
    expect(
      read(message('analysis', 'a') + message('analysis', 'b') + message('commentary', 'c') + message('final', 'd')),
    ).toEqual([
      ['reasoning', 'a\n\nb'],
      ['text', 'c\n\nd'],
    ]);
  });
});

describe('calls', () => {
  const call = (args: string, to = 'functions.now', channel = 'commentary') =>
    `<|channel|>${channel} to=${to} <|constrain|>json<|message|>${args}<|call|>`;

  test.each([
    ['no arguments', call(''), '{}'],
    ['white space around', call('\n{"a": 1}\n'), '{"a": 1}'],
    ['a line break in a text', call('{"a": "b\nc"}'), '{"a": "b\\nc"}'],
    ['in the channel of the reasoning', call('{}', 'functions.now', 'analysis'), '{}'],
    ['without its end', call('{}').replace('<|call|>', ''), '{}'],
    ['with another end', call('{}').replace('<|call|>', '<|end|>'), '{}'],
    ['a marker in a text', call('{"a": "<|channel|>"}'), '{"a": "<|channel|>"}'],
  ])('%s', (_, answer, args) => {
    for (const cut of [false, true]) expect(read(answer, { cut })).toEqual([['call now', args]]);
  });

  test.each([
    ['an unknown tool', call('{}', 'functions.rocket')],
    ['a tool of another kind', call('{}', 'python')],
    ['a list', call('[]')],
    ['malformed arguments', call('{a: 1}')],
    ['more than the arguments', call('{} and')],
    ['cut arguments', call('{"a": "b').replace('<|call|>', '')],
  ])('%s makes it text, as it was written', (_, answer) => {
    expect(read(answer, { cut: true })).toEqual([['text', answer.replace('<|call|>', '')]]);
  });

  test('with tool_choice none nowhere, with a name only of that tool', () => {
    const text = call('{}').replace('<|call|>', '');
    expect(read(call('{}'), { toolChoice: 'none' })).toEqual([['text', text]]);
    expect(read(call('{}'), { toolChoice: { name: 'get_weather' } })).toEqual([['text', text]]);
    expect(read(call('{}'), { toolChoice: { name: 'now' } })).toEqual([['call now', '{}']]);
  });

  test('arguments of a call that is guaranteed come while they are written', () => {
    const types = (constrained: boolean) => {
      const parser = harmony.parser({
        tools: TOOLS,
        toolChoice: 'required',
        startsInReasoning: false,
        begun,
        constrained,
      });
      const pieces = [
        parser.push('', '<|channel|>'),
        parser.push('commentary to=functions.now', '<|message|>'),
        parser.push('{"a": "lo'),
        parser.push('ng"}'),
        parser.end(),
      ];
      return pieces.map(each => each.map(({ type }) => type));
    };
    expect(types(true)).toEqual([[], ['call'], ['arguments'], ['arguments'], []]);
    expect(types(false)).toEqual([[], [], [], [], ['call', 'arguments']]);
  });
});

test('any text: cutting changes nothing, calls are whole, and text is not lost', () => {
  const fragments = [
    ...harmony.markers,
    ...[
      'assistant',
      'analysis',
      'commentary',
      'final',
      ' to=functions.now',
      'json',
      '{}',
      '{"a": "',
      '"}',
      '🐀',
      ' ',
      '\n',
    ],
    '<|start|>assistant<|channel|>final<|message|>',
    '<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>',
    '<|channel|>analysis<|message|>',
    'words that no header has',
  ];
  const answers = fc.array(fc.constantFrom(...fragments), { maxLength: 25 }).map(parts => parts.join(''));
  const options = fc.record({ cut: fc.boolean(), constrained: fc.boolean() });
  fc.assert(
    fc.property(answers, fc.array(fc.nat(400), { maxLength: 10 }), options, (answer, places, more) => {
      const tokens = withTokens(harmony, answer);
      const whole = inOrder(piecesOf(harmony, [tokens], { begun, ...more }));
      expect(inOrder(piecesOf(harmony, cutAt(tokens, places), { begun, ...more }))).toEqual(whole);
      expect(inOrder(piecesOf(harmony, tokens.split(''), { begun, ...more }))).toEqual(whole);
      if (more.constrained) return;
      for (const [type, args] of whole) if (type.startsWith('call')) expect(JSON.parse(args)).toBeTypeOf('object');
      const words = (text: string) => text.split('words that no header has').length;
      const given = whole.filter(([type]) => !type.startsWith('call')).map(([, text]) => text);
      expect(words(given.join(''))).toBe(words(answer));
    }),
    { numRuns: 1500 },
  );
});

describe('which models have it', () => {
  const tokens = ['<|start|>', '<|end|>', '<|message|>', '<|channel|>'];
  const template = "{% if tools %}{% endif %}{{ '<|start|>assistant<|channel|>final<|message|>' }}";
  test.each([
    ['the template shows it', template, tokens, undefined, 'harmony', true],
    ['one that reads thinking', `${template}{{ m.thinking }}`, tokens, undefined, 'harmony', true],
    ['without tools in the template it has none', template.replace('tools', 'x'), tokens, undefined, 'harmony', null],
    ['without the tokens nothing can be told apart', template, ['<|start|>'], undefined, 'json', false],
    ['the family, where the template shows nothing', '{{ tools }}', tokens, 'harmony', 'harmony', true],
    ['not another family', '{{ tools }}', tokens, 'hermes', 'json', false],
  ])('%s', (_, source, addedTokens, usual, name, takesTools) => {
    const format = chooseFormat({ template: source, addedTokens, chat: { format: usual } });
    expect([format.name, format.templateTakesTools]).toEqual([name, takesTools]);
    expect(format.readsThinking ?? false).toBe(source.includes('.thinking'));
  });
});
