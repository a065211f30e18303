/**
 * Fields that clients of OpenAI, vLLM, llama.cpp and others send and that would change an answer, but are not done here, or have
 * another name: refused by name, because an answer that ignores them would be a wrong one. `neutral` values ask for nothing (null
 * always does).
 */

export interface UnsupportedField {
  readonly neutral: readonly unknown[];
  /** What to do instead. */
  readonly hint: string;
}

export type UnsupportedFields = Readonly<Record<string, UnsupportedField>>;

/** What to do on a route instead of sending another API's field: "use max_tokens" and the like. */
export interface FieldHints {
  readonly conversation: string;
  readonly system: string;
  readonly maxTokens: string;
  readonly stop: string;
  readonly form: string;
  readonly thinking: string;
  readonly effort: string;
  readonly toolChoice: string;
  readonly logprobs: string;
}

export const CHAT_HINTS: FieldHints = {
  conversation: 'use messages',
  system: 'begin messages with one of the role system',
  maxTokens: 'use max_tokens',
  stop: 'use stop',
  form: 'use response_format, grammar or regex',
  thinking: 'use enable_thinking',
  effort: 'use reasoning_effort',
  toolChoice: 'use tool_choice',
  logprobs: 'use logprobs',
};

const leaveOut = 'leave it out';

const field = (hint: string, ...neutral: unknown[]): UnsupportedField => ({ neutral, hint });

/** The table of a route; fields that the route has are to be looked for first. */
export function unsupportedFields(hints: FieldHints): UnsupportedFields {
  const { conversation, system, maxTokens, stop, form, thinking, effort, toolChoice, logprobs } = hints;
  return {
    // of OpenAI
    best_of: field('send the request several times', 1),
    suffix: field(leaveOut, ''),
    audio: field('answers are text'),
    modalities: field('answers are text', ['text'], []),
    prediction: field(leaveOut),
    store: field('answers are not kept', false),
    web_search_options: field('declare a tool that searches'),
    functions: field('declare them in tools', []),
    function_call: field(toolChoice, 'none'),
    verbosity: field('ask for it in a message', 'medium'),
    input: field(conversation),
    instructions: field(system),
    max_output_tokens: field(maxTokens),
    // of Anthropic
    system: field(system, '', []),
    stop_sequences: field(stop, []),
    output_config: field(form, {}),
    output_format: field(form),
    thinking: field(thinking),
    reasoning: field(effort),
    // of vLLM and others
    guided_json: field(form),
    guided_regex: field(form),
    guided_grammar: field(form),
    guided_choice: field(form, []),
    structured_outputs: field(form),
    json_schema: field(form),
    response_schema: field(form),
    ignore_eos: field(leaveOut, false),
    min_tokens: field(leaveOut, 0),
    stop_token_ids: field(stop, []),
    bad_words: field('use logit_bias', []),
    allowed_token_ids: field(`use logit_bias, or ${form.replace('use ', '')}`),
    logits_processors: field(leaveOut, []),
    skip_special_tokens: field(leaveOut, true),
    include_stop_str_in_output: field(leaveOut, false),
    truncate_prompt_tokens: field('nothing is cut here; shorten the prompt'),
    prompt_logprobs: field(leaveOut),
    use_beam_search: field(leaveOut, false),
    length_penalty: field(leaveOut, 1),
    chat_template: field("the template is the model's own"),
    add_generation_prompt: field(leaveOut, true),
    continue_final_message: field(leaveOut, false),
    documents: field('put them into a message', []),
    max_new_tokens: field(maxTokens),
    random_seed: field('use seed'),
    // of llama.cpp
    n_predict: field(maxTokens),
    n_probs: field(logprobs, 0),
    repeat_penalty: field('use repetition_penalty', 1),
    samplers: field('their order is fixed; leave it out'),
    typical_p: field(leaveOut, 1),
    tfs_z: field(leaveOut, 1),
    top_a: field(leaveOut, 0),
    top_n_sigma: field(leaveOut, -1, 0),
    mirostat: field(leaveOut, 0),
    dry_multiplier: field(leaveOut, 0),
    xtc_probability: field(leaveOut, 0),
    dynatemp_range: field(leaveOut, 0),
    // of Ollama
    num_predict: field(maxTokens),
    format: field(form, ''),
    options: field('put its values into fields of the body', {}),
    think: field(thinking),
  };
}

export const UNSUPPORTED: UnsupportedFields = unsupportedFields(CHAT_HINTS);
