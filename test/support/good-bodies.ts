/** Bodies that every route takes, with as many fields as go together. */

const schema = {
  type: 'object',
  properties: { on: { type: 'boolean' } },
  required: ['on'],
  additionalProperties: false,
};
const sampling = {
  temperature: 0,
  top_p: 1,
  top_k: 0,
  min_p: 0,
  seed: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  logit_bias: { 97: 1 },
};
const common = { ...sampling, stop: ['zzz'], n: 1, stream: false, user: 'u', model: undefined };
export const functionTool = {
  type: 'function',
  function: { name: 'light', description: 'd', parameters: schema, strict: true },
};

/** A good body of each route that uses as many fields as go together. */
export const GOOD_BODIES: Record<string, [route: string, body: object]> = {
  chat: [
    '/v1/chat/completions',
    {
      ...common,
      max_tokens: 2,
      max_completion_tokens: 2,
      logprobs: true,
      top_logprobs: 1,
      messages: [
        { role: 'system', content: 'x', name: 'n' },
        { role: 'user', content: [{ type: 'text', text: 'x' }] },
        {
          role: 'assistant',
          content: 'x',
          reasoning_content: 'r',
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'light', arguments: '{"on": true}' } }],
        },
        { role: 'tool', tool_call_id: 'a', content: 'x' },
        { role: 'user', content: 'say hi.' },
      ],
      tools: [functionTool],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      enable_thinking: true,
      reasoning_effort: 'low',
      chat_template_kwargs: { enable_thinking: true },
    },
  ],
  'chat, with a form': [
    '/v1/chat/completions',
    {
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: 2,
      stream: true,
      stream_options: { include_usage: true, include_progress: true },
      response_format: { type: 'json_schema', json_schema: { name: 'a', description: 'd', strict: true, schema } },
    },
  ],
  'chat, extensions': [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x' }], max_tokens: 2, regex: 'a+' },
  ],
  'chat, grammar': [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x' }], max_tokens: 2, grammar: 'root ::= "a"' },
  ],
  'chat, forced': [
    '/v1/chat/completions',
    {
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: 2,
      tools: [functionTool],
      tool_choice: { type: 'function', function: { name: 'light' } },
    },
  ],
  completions: [
    '/v1/completions',
    { ...common, prompt: ['a', 'b'], max_tokens: 2, echo: false, logprobs: 1, best_of: 1, suffix: '' },
  ],
  'completions, ids': ['/v1/completions', { prompt: [[97, 98], [99]], max_tokens: 1 }],
  messages: [
    '/v1/messages',
    {
      ...sampling,
      max_tokens: 2,
      system: [{ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }],
      stop_sequences: ['zzz'],
      stream: false,
      metadata: { user_id: 'u' },
      thinking: { type: 'enabled', budget_tokens: 10, display: 'summarized' },
      tools: [{ name: 'light', description: 'd', input_schema: schema }],
      tool_choice: { type: 'auto', disable_parallel_tool_use: false },
      output_config: { effort: 'low' },
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'x' }] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 't', signature: 's' },
            { type: 'tool_use', id: 'a', name: 'light', input: { on: true } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'x', is_error: false }] },
      ],
    },
  ],
  'messages, with a form': [
    '/v1/messages',
    {
      max_tokens: 2,
      messages: [{ role: 'user', content: 'x' }],
      output_config: { format: { type: 'json_schema', schema } },
    },
  ],
  count_tokens: [
    '/v1/messages/count_tokens',
    { system: 'x', messages: [{ role: 'user', content: 'x' }], tools: [{ name: 'light', input_schema: schema }] },
  ],
  responses: [
    '/v1/responses',
    {
      ...sampling,
      instructions: 'x',
      max_output_tokens: 2,
      stop: ['zzz'],
      top_logprobs: 1,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
      tools: [{ type: 'function', name: 'light', description: 'd', parameters: schema, strict: true }],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      text: { format: { type: 'text' }, verbosity: 'medium' },
      metadata: { a: 'b' },
      store: false,
      stream: false,
      truncation: 'disabled',
      input: [
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'x' }] },
        {
          type: 'reasoning',
          id: 'r',
          summary: [{ type: 'summary_text', text: 't' }],
          content: [],
          encrypted_content: null,
        },
        { type: 'function_call', call_id: 'a', name: 'light', arguments: '{"on": true}' },
        { type: 'function_call_output', call_id: 'a', output: 'x' },
      ],
    },
  ],
  'responses, with a form': [
    '/v1/responses',
    { input: 'x', max_output_tokens: 2, text: { format: { type: 'json_schema', name: 'a', schema, strict: true } } },
  ],
  tokenize: ['/tokenize', { content: 'x', add_special: true, parse_special: true, with_pieces: true }],
  detokenize: ['/detokenize', { tokens: [97, 98] }],
  'apply-template': [
    '/apply-template',
    {
      messages: [{ role: 'user', content: 'x' }],
      tools: [functionTool],
      chat_template_kwargs: { enable_thinking: true },
    },
  ],
};
