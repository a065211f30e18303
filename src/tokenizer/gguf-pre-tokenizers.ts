/**
 * GGUF files name their pre-tokenizer instead of describing it. For each known name: what the tokenizer.json of the models that
 * it stands for says.
 */

/** Parts of a tokenizer.json. */
export interface NamedPreTokenizer {
  readonly normalizer: Readonly<Record<string, unknown>> | null;
  /** Regular expressions that cut the text, one after the other. */
  readonly splits: readonly string[];
  /** A piece that is a token stays whole, whatever the merges say. */
  readonly ignoreMerges: boolean;
  /** Texts begin with the BOS token where the file does not say. */
  readonly addBos: boolean;
}

const NFC = { type: 'NFC' };
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const QWEN2 = `${ENDINGS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`;
/** As QWEN2, with combining marks among the letters. */
const QWEN35 = `${ENDINGS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`;
/** As QWEN2, with digits in groups of up to three. */
const CL100K = `${ENDINGS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${SPACES}`;

const UPPER = '\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}';
const LOWER = '\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}';
const O200K = [
  `[^\\r\\n\\p{L}\\p{N}]?[${UPPER}]*[${LOWER}]+${ENDINGS}?`,
  `[^\\r\\n\\p{L}\\p{N}]?[${UPPER}]+[${LOWER}]*${ENDINGS}?`,
  '\\p{N}{1,3}',
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*',
  SPACES,
].join('|');

/** Letters of alphabets with case. */
const CASED = [
  'A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af',
  '\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5',
  '\u03f7-\u0481\u048a-\u052f\u0531-\u0556',
].join('');
const DEEPSEEK_LLM = [
  '[\\r\\n]',
  `\\s?[${CASED}]+`,
  '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+',
  '\\s+$',
  '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+',
  '\\p{N}',
];
const DEEPSEEK_V3 = [
  '\\p{N}{1,3}',
  '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
  `[!"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_\`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`,
];

const plain = (splits: readonly string[], more: Partial<NamedPreTokenizer> = {}): NamedPreTokenizer => ({
  normalizer: null,
  splits,
  ignoreMerges: false,
  addBos: false,
  ...more,
});

const LLAMA3 = plain([CL100K], { ignoreMerges: true, addBos: true });
const GLM4 = plain([CL100K], { ignoreMerges: true });

export const GGUF_PRE_TOKENIZERS: Readonly<Record<string, NamedPreTokenizer>> = {
  'gpt-2': plain([GPT2]),
  olmo: plain([GPT2], { normalizer: NFC }),
  qwen2: plain([QWEN2], { normalizer: NFC }),
  'deepseek-r1-qwen': plain([QWEN2], { normalizer: NFC }),
  qwen35: plain([QWEN35], { normalizer: NFC }),
  'gpt-4o': plain([O200K]),
  'minimax-m2': plain([O200K]),
  'llama-bpe': LLAMA3,
  llama3: LLAMA3,
  'llama-v3': LLAMA3,
  glm4: GLM4,
  'chatglm-bpe': GLM4,
  'deepseek-llm': plain(DEEPSEEK_LLM),
  'deepseek-v3': plain(DEEPSEEK_V3),
};

/** `pre_tokenizer` of a tokenizer.json. */
export function preTokenizerJson({ splits }: NamedPreTokenizer): Record<string, unknown> {
  const steps = splits.map(Regex => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }));
  return { type: 'Sequence', pretokenizers: [...steps, BYTE_LEVEL] };
}

export const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
