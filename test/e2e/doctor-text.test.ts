/** coli doctor about tokenizers and chat templates that are damaged, missing or wrong. */

import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyOf, examine as doctor, editJson, find, OLMOE } from './doctor-support.ts';

describe('tokenizer and template', () => {
  test('a damaged tokenizer', async () => {
    const directory = copyOf(OLMOE);
    const file = path.join(directory, 'tokenizer.json');
    fs.truncateSync(file, fs.statSync(file).size >> 1);
    const report = await doctor(directory);
    expect(find(report, 'model.tokenizer')).toMatchObject({ status: 'fail', details: { code: 'JSON_INVALID' } });
    expect(find(report, 'model.template')).toMatchObject({ status: 'skip', summary: 'needs model.tokenizer' });
    expect(find(report, 'memory.plan').status).toBe('pass');
  });

  test('a tokenizer that loses what it is given', async () => {
    const directory = copyOf(OLMOE);
    editJson(directory, 'tokenizer.json', tokenizer => {
      tokenizer.normalizer = { type: 'Replace', pattern: { String: 'x' }, content: 'y' };
    });
    expect(find(await doctor(directory), 'model.tokenizer').status).toBe('warn');
  });

  const templates: [what: string, template: string | null, status: string, text: string][] = [
    ['none', null, 'warn', 'can only continue texts'],
    ['one that does not parse', '{% for m in %}', 'fail', 'template'],
    ['one that leaves out the user', 'hello', 'fail', 'leaves out what the user says'],
    [
      'one that breaks at results of tools',
      "{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{{ m.content | frobnicate }}{% endif %}{% endfor %}",
      'warn',
      'frobnicate',
    ],
    [
      'one that refuses system messages',
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}{% endfor %}",
      'pass',
      'without system',
    ],
  ];
  test.each(templates)('template: %s', async (_, template, status, text) => {
    const directory = copyOf(OLMOE);
    editJson(directory, 'tokenizer_config.json', config => {
      if (template === null) delete config.chat_template;
      else config.chat_template = template;
    });
    const found = find(await doctor(directory), 'model.template');
    expect(found.summary).toContain(text);
    expect(found.status).toBe(status);
  });
});
