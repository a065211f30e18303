/** Where the time of a token goes: phases, which operation belongs to which, and a clock that is always in exactly one. */

/** In the order of the report. */
export const PHASES = {
  embedding: 'embedding',
  norms: 'norms, rope, residual sums',
  quantise: 'quantise (not with norm, swiglu)',
  qkv: 'attention: q, k, v',
  core: 'attention: scores, values',
  keyValues: 'attention: write keys, values',
  output: 'attention: o',
  heads: 'attention: matrices of latents',
  indexer: 'attention: indexer, chosen keys',
  delta: 'linear attention: rule, convolution',
  elements: 'biases, gates, copies of heads',
  dense: 'MLPs that all tokens use',
  router: 'router: matrix, softmax, top k',
  expertStore: 'experts: lookup and requests',
  expertWait: 'experts: wait for reads',
  gateUp: 'experts: gate, up',
  swiglu: 'experts: swiglu',
  down: 'experts: down',
  combine: 'experts: weighted sum',
  head: 'head: final norm, logits',
  finite: 'checks that values are finite',
  sampler: 'sampler',
  otherMatrices: 'other matrices',
  unknown: 'other operations',
  syncStart: 'sync: start of a job, wake-ups',
  syncClaim: 'sync: between chunks',
  syncWait: 'sync: waiting for lanes',
  dispatch: 'jobs that run on one lane',
  javascript: 'other JavaScript of the pass',
  bookkeeping: 'this profiler counts commands',
  other: 'other',
} as const;

export type Phase = keyof typeof PHASES;
export const PHASE_NAMES = Object.keys(PHASES) as Phase[];
/** Phases as the clock knows them: positions in PHASE_NAMES. */
export const AT = Object.fromEntries(PHASE_NAMES.map((phase, i) => [phase, i])) as Readonly<Record<Phase, number>>;

/** Operations that serve one phase wherever they are used; matrix products belong to the phase of their weights. */
const BY_OPERATION: Readonly<Record<string, Phase>> = {
  quantise: 'quantise',
  rmsNorm: 'norms',
  rmsNormQuantise: 'norms',
  rope: 'norms',
  add: 'norms',
  clamp: 'norms',
  layerNorm: 'norms',
  addRows: 'elements',
  copyColumns: 'elements',
  sigmoidGate: 'elements',
  gateRows: 'elements',
  indexScores: 'indexer',
  selectKeys: 'indexer',
  convSilu: 'delta',
  deltaGates: 'delta',
  deltaRule: 'delta',
  attention: 'core',
  toBf16: 'keyValues',
  swiglu: 'swiglu',
  swigluQuantise: 'swiglu',
  swigluClamped: 'swiglu',
  sigmoid: 'router',
  softmax: 'router',
  topK: 'router',
  combine: 'combine',
  embed: 'embedding',
  allFinite: 'finite',
};

/** The phase of a command or kernel by its name; null: that of its weights; `unknown`: this file does not know it. */
export function phaseOfOperation(name: string): Phase | null {
  if (name.startsWith('matmul')) return null;
  return Object.hasOwn(BY_OPERATION, name) ? BY_OPERATION[name] : 'unknown';
}

/** The phase of a resident matrix by its role in the family's tensor table and its name. */
export function phaseOfMatrix(role: string, name: string): Phase {
  if (role === 'attention') return /\.(?:o_proj|out_proj)\./.test(name) ? 'output' : 'qkv';
  if (role === 'router') return 'router';
  if (role === 'latent') return 'heads';
  if (role === 'indexer') return 'indexer';
  if (role === 'mlp' || role === 'shared') return 'dense';
  return role === 'head' || role === 'embedding' ? 'head' : 'otherMatrices';
}

/** Gate, up, down. */
export const PART_PHASES: readonly Phase[] = ['gateUp', 'gateUp', 'down'];

const { syncStart: SYNC_START, syncClaim: SYNC_CLAIM, syncWait: SYNC_WAIT } = AT;

/** Every moment belongs to one phase, so the phases sum to the time that passed. Phases are given as positions. */
export class Clock {
  readonly #ms = new Float64Array(PHASE_NAMES.length);
  readonly #now: () => number;
  #phase = AT.other;
  #last: number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#last = now();
  }

  /** Books the time since the last switch to the phase that ends; returns that phase. */
  switchTo(phase: number): number {
    const now = this.#now();
    const ended = this.#phase;
    this.#ms[ended] += now - this.#last;
    this.#last = now;
    this.#phase = phase;
    return ended;
  }

  /** A kernel starts. What looked like waiting for lanes since the last kernel of the job was claiming this chunk. */
  enterKernel(phase: number): number {
    const outside = this.#phase;
    if (outside === SYNC_WAIT) this.#phase = SYNC_CLAIM;
    this.switchTo(phase);
    return outside;
  }

  /** A kernel ends; `outside` is what enterKernel gave. After the first kernel of a job only waiting may be left. */
  leaveKernel(outside: number): void {
    this.switchTo(outside === SYNC_START ? SYNC_WAIT : outside);
  }

  /** Milliseconds by phase since the last call, up to now. */
  take(): Record<Phase, number> {
    this.switchTo(this.#phase);
    const taken = Object.fromEntries(PHASE_NAMES.map((phase, i) => [phase, this.#ms[i]])) as Record<Phase, number>;
    this.#ms.fill(0);
    return taken;
  }
}

/** Indices of the middle half of the values, so that a token that another program held up does not count. */
export function middleHalf(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const cut = Math.floor(values.length / 4);
  return order.slice(cut, values.length - cut);
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
