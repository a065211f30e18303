/**
 * Fields that clients of OpenAI, vLLM and llama.cpp send and that would change an answer, but are not done here: refused by name,
 * because an answer that ignores them would be a wrong one. `neutral` values ask for nothing (null always does).
 */

export interface UnsupportedField {
  readonly neutral: readonly unknown[];
  /** What to do instead. */
  readonly hint: string;
}

const leaveOut = 'leave it out';
const constrain = 'use response_format, grammar or regex';

const field = (hint: string, ...neutral: unknown[]): UnsupportedField => ({ neutral, hint });

export const UNSUPPORTED: Readonly<Record<string, UnsupportedField>> = {
  // of OpenAI
  best_of: field('send the request several times', 1),
  suffix: field(leaveOut, ''),
  audio: field('answers are text'),
  modalities: field('answers are text', ['text'], []),
  prediction: field(leaveOut),
  store: field('answers are not kept', false),
  web_search_options: field('declare a tool that searches'),
  functions: field('declare them in tools', []),
  function_call: field('use tool_choice', 'none'),
  verbosity: field('ask for it in a message', 'medium'),
  // of vLLM and others
  guided_json: field(constrain),
  guided_regex: field(constrain),
  guided_grammar: field(constrain),
  guided_choice: field(constrain, []),
  structured_outputs: field(constrain),
  json_schema: field(constrain),
  ignore_eos: field(leaveOut, false),
  min_tokens: field(leaveOut, 0),
  stop_token_ids: field('use stop', []),
  bad_words: field('use logit_bias', []),
  include_stop_str_in_output: field(leaveOut, false),
  truncate_prompt_tokens: field('nothing is cut here; shorten the prompt'),
  prompt_logprobs: field(leaveOut),
  use_beam_search: field(leaveOut, false),
  length_penalty: field(leaveOut, 1),
  chat_template: field("the template is the model's own"),
  documents: field('put them into a message', []),
  thinking: field('use enable_thinking'),
  reasoning: field('use reasoning_effort'),
  // of llama.cpp
  n_predict: field('use max_tokens'),
  repeat_penalty: field('use repetition_penalty', 1),
  typical_p: field(leaveOut, 1),
  tfs_z: field(leaveOut, 1),
  top_a: field(leaveOut, 0),
  mirostat: field(leaveOut, 0),
  dry_multiplier: field(leaveOut, 0),
  xtc_probability: field(leaveOut, 0),
  dynatemp_range: field(leaveOut, 0),
};
