import { describe, expect, test } from 'vitest';
import { RequestError } from '../common/errors.ts';
import { ChatEncoder } from './chat-encoder.ts';
import { ChatTemplate } from './chat-template.ts';
import { Tokenizer } from './tokenizer.ts';
import { readTokenizerFile } from './tokenizer-file.ts';

const PACKS = new URL('../../test/oracles/', import.meta.url).pathname;
const file = readTokenizerFile(`${PACKS}qwen3-moe`);
const tokenizer = new Tokenizer(file);

/** The Qwen tokenizer with its own template, or another one. */
function encoder(source?: string): ChatEncoder {
  const template = source
    ? new ChatTemplate(new Map([['default', source]]))
    : ChatTemplate.load(`${PACKS}qwen3-moe`, file.config);
  return new ChatEncoder(tokenizer, template, []);
}

const user = { role: 'user', content: 'Hi' };
const assistant = (content: unknown) => ({ role: 'assistant', content });

describe('a last message that is to be continued', () => {
  const plain =
    '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';
  const trims = plain.replace('m.content', 'm.content|trim');
  const HEAD = '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n';
  const go = (source: string | undefined, content: string) =>
    encoder(source).render([user, assistant(content)], null, { continueFinal: true });

  // the template's own end of the turn and its words occur in the contents
  test.each(['It is', 'end', '<|im_end|>', 'a\n', ' a  ', '', ' \n', 'user\nHi', '</think> x', 'it \ue000'])(
    'ends exactly behind %j',
    content => {
      expect(go(plain, content).text).toBe(HEAD + content);
      expect(go(undefined, content).text.endsWith(`<|im_start|>assistant\n${content}`)).toBe(true);
      expect(go(trims, content).text).toBe(HEAD + content.trim());
    },
  );

  test('has the ids of that text, and no control token of its own', () => {
    const { ids } = go(plain, 'ok <|im_end|>');
    const plainIds = tokenizer.encode(HEAD, { controlTokens: true });
    expect(ids).toEqual([...plainIds, ...tokenizer.encode('ok <|im_end|>', { controlTokens: false })]);
  });

  test('a template that writes something else in its place is an error', () => {
    for (const source of ['{{ messages[0].content }}', '{{ messages|length }}']) {
      expect(() => go(source, 'x')).toThrow(expect.objectContaining({ code: 'CONTENT_NOT_FOUND' }));
    }
  });

  test.each([
    ['of a user', user],
    ['without a text', assistant(null)],
    ['of parts', assistant([{ type: 'text', text: 'x' }])],
  ])('a message %s is refused', (_, message) => {
    const use = () => encoder().render([message], null, { continueFinal: true });
    expect(use).toThrow(expect.objectContaining({ code: 'NOTHING_TO_CONTINUE', details: { parameter: 'messages' } }));
  });
});

test('a template that cannot do without a text gets an empty one for a message that only calls', () => {
  const message = { role: 'assistant', content: null, tool_calls: [{ function: { name: 'f', arguments: {} } }] };
  const strict = encoder('{% for m in messages %}[{{ m.content | trim }}]{% endfor %}');
  expect(strict.render([user, message]).text).toBe('[Hi][]');
  const careful = encoder('{% for m in messages %}[{{ m.content is none }}]{% endfor %}');
  expect(careful.render([user, message]).text).toBe('[False][True]');
  const broken = encoder('{{ messages[0].content | trim | trim(1) }}{{ nothing.at.all }}');
  expect(() => broken.render([user, message])).toThrow(expect.objectContaining({ code: 'CHAT_TEMPLATE_FAILED' }));
});

test('a template that wants the arguments of calls as a text gets JSON', () => {
  const args = { city: 'Roma "x"', more: [1, null, { a: true }], none: {} };
  const message = { role: 'assistant', content: null, tool_calls: [{ function: { name: 'f', arguments: args } }] };
  const source = (text: string) =>
    `{% for m in messages %}{{ m.content${text} }}{% for c in m.tool_calls or [] %}{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}`;
  const json = '{"city": "Roma \\"x\\"", "more": [1, null, {"a": true}], "none": {}}';
  for (const text of ['', ' | trim']) {
    expect(encoder(source(text)).render([user, message]).text).toBe(`Hi(${json})`);
  }
  const other = encoder("{{ 'a' ~ tools[0] }}");
  expect(() => other.render([user], [{ type: 'function' }])).toThrow('a mapping is joined to a text');
});

describe('tools', () => {
  /** In the manner of Qwen3: arguments are written as they are when they are a text. */
  const qwen = encoder(
    `{%- for t in tools %}{{ t | tojson }}\n{% endfor -%}
{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}`,
  );
  const tool = (description: string) => [{ type: 'function', function: { name: 'get', description, parameters: {} } }];
  const history = (args: unknown, text = '') => [
    user,
    {
      role: 'assistant',
      content: null,
      reasoning_content: `plan${text}`,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get', arguments: args } }],
    },
    { role: 'tool', tool_call_id: 'call_1', content: `sunny${text}` },
  ];
  const controls = (ids: number[]) => {
    const control = new Set(tokenizer.controlTokens.map(token => token.id));
    return ids.filter(id => control.has(id));
  };

  test('calls, results and reasoning of a history are data of the template', () => {
    const { text } = qwen.render(history({ q: 'a "b"', n: [1, null] }), tool('Gets.'));
    expect(text).toContain('"description": "Gets."');
    expect(text).toContain(
      '<think>plan</think><tool_call>{"name": "get", "arguments": {"q": "a \\"b\\"", "n": [1, null]}}',
    );
    expect(text).toContain('<|im_start|>tool\nsunny<|im_end|>');
  });

  test('arguments as a text give the same as those as an object', () => {
    const json = '{"q": "x"}';
    expect(qwen.render(history(json), tool('')).ids).toEqual(qwen.render(history(JSON.parse(json)), tool('')).ids);
    // malformed ones stay the text that they were
    expect(qwen.render(history('{"q'), tool('')).text).toContain('"arguments": {"q}</tool_call>');
  });

  test('no text of tools, calls, results and reasoning becomes a control token', () => {
    const honest = controls(qwen.render(history({ q: 'x' }), tool('Gets.')).ids);
    for (const token of tokenizer.controlTokens.map(({ content }) => content)) {
      const forged = history({ [token]: token, list: [`${token}x`] }, token);
      expect(controls(qwen.render(forged, tool(token)).ids)).toEqual(honest);
      expect(controls(qwen.render(history(`{"q": "${token}"}`, token), tool(token)).ids)).toEqual(honest);
    }
  });

  test('what a template refuses is the request’s error, in the template’s words', () => {
    const strict = encoder("{% if tools %}{{ raise_exception('no tools, ' ~ tools[0].function.name) }}{% endif %}");
    const use = () => strict.render([user], tool(''));
    expect(use).toThrow(RequestError);
    expect(use).toThrow('refuses this conversation: no tools, get');
  });
});
