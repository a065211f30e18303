import { describe, expect, test } from 'vitest';
import { InternalError, PlanError, RequestError } from '../common/errors.ts';
import type { Engine } from '../engine/api.ts';
import { DIALECTS } from './dialects.ts';
import { ask, type Run, startTestServer, testEngine, testRunner, testStatus, VOCABULARY } from './test-support.ts';

const ROUTES = ['/health', '/v1/models', '/v1/models/test-model', '/props', '/metrics', '/openapi.json', '/nope'];

describe('routes', () => {
  test('models, in both shapes', async () => {
    const { port } = await startTestServer();
    const list = await ask(port, '/v1/models');
    expect(list.json).toMatchObject({
      object: 'list',
      data: [
        { id: 'test-model', object: 'model', owned_by: 'colibri', context_length: 1024, max_context_length: 4096 },
      ],
    });
    expect((await ask(port, '/v1/models/test-model')).json).toMatchObject({ id: 'test-model', object: 'model' });
    const headers = { 'anthropic-version': '2023-06-01' };
    expect((await ask(port, '/v1/models', { headers })).json).toMatchObject({
      data: [{ type: 'model', id: 'test-model', display_name: 'test-model' }],
      has_more: false,
      first_id: 'test-model',
    });
    expect((await ask(port, '/v1/models/test-model', { headers })).json).toMatchObject({ type: 'model' });
  });

  test('further names are listed and may be asked for; replies name the first', async () => {
    const run: Run = async function* () {};
    const { port } = await startTestServer({ change: { modelAliases: ['small'] }, run });
    const ids = (await ask(port, '/v1/models')).json.data.map(({ id }: { id: string }) => id);
    expect(ids).toEqual(['test-model', 'small']);
    expect((await ask(port, '/v1/models/small')).json.id).toBe('small');
    expect((await ask(port, '/v1/models/other')).status).toBe(404);
    expect((await ask(port, '/echo', { body: { model: 'small' } })).status).toBe(200);
    expect((await ask(port, '/echo', { body: { model: 'other' } })).status).toBe(404);
  });

  test('errors outside of all routes have the shape of the API that the client speaks', async () => {
    const { port } = await startTestServer({ dialects: DIALECTS });
    const headers = { 'anthropic-version': '2023-06-01' };
    const errors = [
      await ask(port, '/v1/models/zzz', { headers }),
      await ask(port, '/v1/nowhere', { headers }),
      await ask(port, '/v1/messages/nowhere'),
      await ask(port, '/v1/messages'),
    ];
    expect(errors.map(({ status, json }) => [status, json.type, json.error.type])).toEqual([
      [404, 'error', 'not_found_error'],
      [404, 'error', 'not_found_error'],
      [404, 'error', 'not_found_error'],
      [405, 'error', 'invalid_request_error'],
    ]);
    for (const path of ['/v1/models/zzz', '/v1/messagesx']) {
      expect((await ask(port, path)).json.error).toHaveProperty('code');
    }
  });

  test('an error about the prompt names the field that holds it', async () => {
    const run: Run = () => {
      throw new RequestError('EMPTY_PROMPT', 'the prompt has no tokens');
    };
    const { port } = await startTestServer({ dialects: DIALECTS, run });
    const bodies = {
      '/v1/chat/completions': { messages: [{ role: 'user', content: '' }] },
      '/v1/completions': { prompt: '' },
      '/v1/responses': { input: '' },
    };
    for (const [path, body] of Object.entries(bodies)) {
      const { json } = await ask(port, path, { body });
      expect([json.error.code, json.error.param]).toEqual(['empty_prompt', Object.keys(body)[0]]);
    }
  });

  test('an id with a slash is found when it is escaped', async () => {
    const { port } = await startTestServer({ change: { modelId: 'org/name' } });
    expect((await ask(port, '/v1/models/org%2Fname')).json).toMatchObject({ id: 'org/name' });
  });

  test('a model that is not served is 404, with the one that is', async () => {
    const { port } = await startTestServer();
    const { status, json } = await ask(port, '/v1/models/other');
    expect(status).toBe(404);
    expect(json.error).toMatchObject({ code: 'model_not_found', param: 'model', type: 'invalid_request_error' });
    expect(json.error.message).toContain('test-model');
    expect((await ask(port, '/echo', { body: { model: 'gpt-4' } })).status).toBe(404);
  });

  test('props tell the settings in force', async () => {
    const { port } = await startTestServer();
    const { json } = await ask(port, '/props');
    expect(json).toMatchObject({
      default_generation_settings: { n_ctx: 1024, params: { temperature: 0.5, top_p: 0.9, top_k: 4, max_tokens: 99 } },
      total_slots: 2,
      kv: 'f32',
      kernels: 'reference',
      activations: 'int8',
      has_chat_template: true,
      policy: 'lfru',
      prefetch: 'auto',
      io: 'direct',
      usage: { mode: 'on', tokens: 700 },
      build_info: 'colibri 1.2.3',
      fingerprint: 'fp_test',
    });
  });

  test('metrics copy the counters of engine and queue, and count requests by route', async () => {
    const { port, queue } = await startTestServer();
    queue.enter('a', new AbortController().signal).leave();
    await ask(port, '/v1/models/other');
    const { text, headers } = await ask(port, '/metrics');
    expect(headers['content-type']).toContain('text/plain');
    expect(text).toContain(`\ncoli_engine_expert_hits_total ${testStatus.expertHits}\n`);
    expect(text).toContain(`\ncoli_engine_experts_warmed_total ${testStatus.expertsWarmed}\n`);
    expect(text).toContain(`\ncoli_engine_expert_warm_hits_total ${testStatus.expertWarmHits}\n`);
    expect(text).toContain(`\ncoli_engine_pin_swaps_total ${testStatus.pinSwaps}\n`);
    expect(text).toContain('\ncoli_queue_completed_total 1\n');
    expect(text).toContain('\ncoli_engine_timed_steps_total{mode="decode"} 0\n');
    expect(text).toContain('coli_http_requests_total{route="/v1/models/:model",status="404"} 1');
    expect(text).toMatch(/\ncoli_resident_memory_bytes \d{6,}\n/);
    const info = { version: '1.2.3', model: 'test-model', kv: 'f32', kernels: 'reference', activations: 'int8' };
    const labels = Object.entries({ ...info, fingerprint: 'fp_test' }).map(([name, value]) => `${name}="${value}"`);
    expect(text).toContain(`\ncoli_info{${labels.join(',')}} 1\n`);
    const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
    expect(names.every(name => name.startsWith('coli_'))).toBe(true);
    // what is copied does not add up with every look
    expect((await ask(port, '/metrics')).text).toContain('\ncoli_queue_completed_total 1\n');
  });

  test('times of turns are measured', async () => {
    const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 3, reasoningTokens: 0 };
    const { port } = await startTestServer({
      run: async function* () {
        yield { type: 'accepted', promptTokens: 1 };
        yield { type: 'text', text: 'a' };
        await new Promise(resolve => setImmediate(resolve));
        yield { type: 'end', finish: 'stop', stopSequence: null, usage };
      },
    });
    expect((await ask(port, '/echo', { body: { text: 'x' } })).json.events).toHaveLength(3);
    const { text } = await ask(port, '/metrics');
    expect(text).toContain('coli_time_to_first_token_seconds_count 1');
    expect(text).toContain('coli_tokens_per_second_count 1');
  });

  test('tokenize and detokenize', async () => {
    const { port } = await startTestServer();
    expect((await ask(port, '/tokenize', { body: { content: 'ab' } })).json).toEqual({ tokens: [97, 98] });
    expect((await ask(port, '/tokenize', { body: { content: '' } })).json).toEqual({ tokens: [] });
    const special = { content: 'ab', add_special: true };
    expect((await ask(port, '/tokenize', { body: special })).json).toEqual({ tokens: [256, 97, 98] });
    expect((await ask(port, '/tokenize', { body: { content: 'é', with_pieces: true } })).json).toEqual({
      tokens: [
        { id: 0xc3, piece: [0xc3] },
        { id: 0xa9, piece: [0xa9] },
      ],
    });
    expect((await ask(port, '/detokenize', { body: { tokens: [97, 98] } })).json).toEqual({ content: 'ab' });
  });

  test('what these cannot do is refused by name', async () => {
    const { port } = await startTestServer();
    const refused = await ask(port, '/tokenize', { body: { content: 'a <eos> b', parse_special: false } });
    expect(refused).toMatchObject({ status: 400, json: { error: { param: 'parse_special' } } });
    expect((await ask(port, '/tokenize', { body: { content: 'plain', parse_special: false } })).status).toBe(200);
    const ids = await ask(port, '/detokenize', { body: { tokens: [0, VOCABULARY] } });
    expect(ids).toMatchObject({ status: 400, json: { error: { param: 'tokens[1]' } } });
    for (const tokens of [[-1], [0.5], ['a'], null, {}, [null]]) {
      const { status, json } = await ask(port, '/detokenize', { body: { tokens } });
      expect([status, json.error.param]).toEqual([400, expect.stringMatching(/^tokens/)]);
    }
  });

  test('apply-template', async () => {
    const { port } = await startTestServer();
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }];
    const { json } = await ask(port, '/apply-template', { body: { messages } });
    expect(JSON.parse(json.prompt)).toEqual([{ role: 'user', content: 'Hi' }]);
  });

  test('the OpenAPI document has every route with a summary and its replies', async () => {
    const { port } = await startTestServer();
    const { json } = await ask(port, '/openapi.json');
    expect(json.openapi).toMatch(/^3\.1\./);
    const expected = [
      '/health',
      '/v1/models',
      '/v1/models/{model}',
      '/props',
      '/profile',
      '/experts',
      '/metrics',
      '/openapi.json',
    ];
    expect(Object.keys(json.paths)).toEqual(
      expect.arrayContaining([...expected, '/tokenize', '/detokenize', '/apply-template', '/echo']),
    );
    for (const methods of Object.values(json.paths) as Record<string, { summary: string; responses: object }>[]) {
      for (const route of Object.values(methods)) {
        expect(route.summary).toBeTruthy();
        expect(Object.keys(route.responses)).toContain('200');
      }
    }
    expect(json.paths['/detokenize'].post.requestBody.content['application/json'].schema.required).toEqual(['tokens']);
  });
});

describe('while there is no model', () => {
  test('health tells how far loading is, and the other routes ask to come back', async () => {
    const { port, state } = await startTestServer({ loading: true });
    state.progress({ phase: 'load', doneBytes: 5, totalBytes: 10 });
    const health = await ask(port, '/health');
    expect(health).toMatchObject({
      status: 503,
      json: { status: 'loading', progress: { phase: 'load', done_bytes: 5, total_bytes: 10 } },
    });
    const bodies: Record<string, object> = {
      '/tokenize': { content: 'a' },
      '/detokenize': { tokens: [1] },
      '/apply-template': { messages: [{ role: 'user', content: 'a' }] },
      '/echo': { text: 'a' },
    };
    for (const path of ['/v1/models', '/props', ...Object.keys(bodies)]) {
      const { status, headers, json } = await ask(port, path, { body: bodies[path] });
      expect([path, status, json?.error.code]).toEqual([path, 503, 'model_loading']);
      expect(headers['retry-after']).toBe('1');
    }
    state.ready(
      testEngine,
      testRunner(async function* () {}),
    );
    expect((await ask(port, '/health')).json).toMatchObject({
      status: 'ok',
      slots: 1,
      queue: { active: 0, capacity: 1 },
    });
    expect((await ask(port, '/v1/models')).status).toBe(200);
  });

  test('a model that cannot be loaded is told, without an invitation to come back', async () => {
    const { port, state } = await startTestServer({ loading: true });
    state.fail(new PlanError('RAM_TOO_SMALL', '1 MB is too small', { hint: 'give 2 MB' }));
    const health = await ask(port, '/health');
    expect(health).toMatchObject({ status: 503, json: { status: 'error' } });
    expect(health.json.error.message).toContain('1 MB is too small; give 2 MB');
    const models = await ask(port, '/v1/models');
    expect(models).toMatchObject({ status: 503, json: { error: { code: 'model_failed' } } });
    expect(models.headers['retry-after']).toBeUndefined();
  });

  test.each([false, true])('an engine that dies makes the server unhealthy; stream: %s', async stream => {
    const { port } = await startTestServer({
      run: async function* () {
        if (stream) yield { type: 'accepted', promptTokens: 1 };
        throw new InternalError('ENGINE_DIED', 'the engine stopped');
      },
    });
    const { status, text } = await ask(port, '/echo', { body: { text: 'a', stream } });
    expect(status).toBe(stream ? 200 : 503);
    expect(text).toContain('engine_died');
    expect(await ask(port, '/health')).toMatchObject({ status: 503, json: { status: 'error' } });
  });

  test('one that dies while nothing runs is seen by whoever looks', async () => {
    const { port, state } = await startTestServer({ loading: true });
    const died = new InternalError('ENGINE_DIED', 'the engine stopped');
    const dead: Engine = {
      ...testEngine,
      get status(): never {
        throw died;
      },
    };
    state.ready(
      dead,
      testRunner(async function* () {}),
    );
    expect(await ask(port, '/health')).toMatchObject({ status: 503, json: { error: { code: 'engine_died' } } });
    const { text: metrics } = await ask(port, '/metrics');
    expect(metrics).toContain('\ncoli_model_ready 0\n');
    expect(metrics).not.toContain('coli_info{');
    expect((await ask(port, '/v1/models')).json.error.code).toBe('model_failed');
  });
});

describe('errors', () => {
  test('unknown routes and methods are JSON', async () => {
    const { port } = await startTestServer();
    const unknown = await ask(port, '/nope?a=1');
    expect(unknown).toMatchObject({
      status: 404,
      json: { error: { code: 'not_found', type: 'invalid_request_error' } },
    });
    for (const [method, path] of [
      ['GET', '/tokenize'],
      ['PUT', '/v1/models'],
      ['DELETE', '/v1/models/test-model'],
      ['OPTIONS', '/props'],
    ]) {
      const { status, json, headers } = await ask(port, path, { method });
      expect([method, status, json.error.code]).toEqual([method, 405, 'method_not_allowed']);
      expect(headers.allow).toContain(method === 'GET' ? 'POST' : 'GET');
    }
    const bad = await ask(port, '/%zz');
    expect(bad).toMatchObject({ status: 400, json: { error: { type: 'invalid_request_error' } } });
  });

  test('every reply has its own request id and is not sniffed', async () => {
    const { port } = await startTestServer();
    const ids = new Set<unknown>();
    for (const path of [...ROUTES, '/%zz']) {
      const { headers } = await ask(port, path);
      expect(headers['x-request-id']).toMatch(/^req_[0-9a-f]{32}$/);
      ids.add(headers['x-request-id']);
      if (path !== '/%zz') expect(headers['x-content-type-options']).toBe('nosniff');
    }
    expect(ids.size).toBe(ROUTES.length + 1);
  });

  test('an unexpected failure tells nothing of itself, and the log everything', async () => {
    const { port, log } = await startTestServer({
      run: () => {
        throw new TypeError('secret internals');
      },
    });
    const { status, text } = await ask(port, '/echo', { body: { text: 'x' } });
    expect(status).toBe(500);
    expect(text).not.toContain('secret');
    expect(log.join('')).toContain('secret internals');
  });

  test('the field of a wrong type is named, also inside alternatives', async () => {
    const { port } = await startTestServer();
    const param = async (body: object) => {
      const { status, json } = await ask(port, '/echo', { body });
      return [status, json.error.param, json.error.message];
    };
    expect(await param({ stream: 'yes' })).toEqual([400, 'stream', expect.stringContaining('expected boolean')]);
    expect(await param({ parts: 3 })).toEqual([400, 'parts', 'parts: expected string or array']);
    expect(await param({ parts: [{ text: 'a' }, { text: 1 }] })).toEqual([400, 'parts[1].text', expect.any(String)]);
  });
});

describe('logs', () => {
  test('a request is one line without what it says', async () => {
    const { port, log } = await startTestServer();
    await ask(port, '/tokenize', { body: { content: 'PRIVATE' } });
    await ask(port, '/nope?q=PRIVATE');
    expect(log).toHaveLength(2);
    expect(JSON.parse(log[0])).toMatchObject({ method: 'POST', route: '/tokenize', status: 200 });
    expect(log.join('')).not.toContain('PRIVATE');
  });

  test('one that is refused has its code there, and nothing of what it said', async () => {
    const { port, log } = await startTestServer();
    const lines = async (path: string, body?: unknown) => {
      log.length = 0;
      await ask(port, path, { body });
      return log.map(line => JSON.parse(line));
    };
    const line = (status: number, code: string) => expect.objectContaining({ msg: 'request', status, code });
    expect(await lines('/tokenize', { content: ['PRIVATE'] })).toEqual([line(400, 'invalid_value')]);
    expect(await lines('/tokenize', { PRIVATE: 1 })).toEqual([line(400, 'invalid_value')]);
    expect(log.join('')).not.toContain('PRIVATE');
    expect(await lines('/tokenize', '{"PRIVATE')).toEqual([line(400, 'bad_body')]);
    expect(log.join('')).not.toContain('PRIVATE');
    expect(await lines('/nope')).toEqual([line(404, 'not_found')]);
    expect(await lines('/%zz')).toEqual([line(400, 'bad_request')]);
    expect(await lines('/v1/models')).toEqual([expect.not.objectContaining({ code: expect.anything() })]);
  });

  test('a stream that breaks off has begun with 200, and ended with a code', async () => {
    const { port, log } = await startTestServer({
      run: async function* () {
        yield { type: 'accepted', promptTokens: 1 };
        throw new RequestError('SERVER_STOPPING', 'the server is stopping');
      },
    });
    expect((await ask(port, '/echo', { body: { text: 'a', stream: true } })).text).toContain('server_stopping');
    expect(log.map(line => JSON.parse(line))).toEqual([
      expect.objectContaining({ msg: 'request', status: 200, code: 'server_stopping' }),
    ]);
  });

  test('bodies are logged when asked for, above all those that are refused', async () => {
    const { port, log } = await startTestServer({ change: { logPrompts: true } });
    const bodies = async (path: string, body?: unknown) => {
      log.length = 0;
      await ask(port, path, { body });
      const lines = log.map(line => JSON.parse(line));
      return lines.filter(({ msg }) => msg === 'request body').map(line => line.body);
    };
    expect(await bodies('/tokenize', { content: 'good' })).toEqual([{ content: 'good' }]);
    expect(await bodies('/tokenize', { content: 1 })).toEqual([{ content: 1 }]);
    expect(await bodies('/tokenize', '{"content": ')).toEqual(['{"content": ']);
    expect(await bodies('/v1/models')).toEqual([]);
  });
});
