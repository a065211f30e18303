/** What the commands about mirrors plan, do and find. */

export interface PlannedFile {
  readonly name: string;
  readonly bytes: number;
  /** `verified`: by the receipt; `there`: a file of the same size and header, not yet compared as a whole; else to be copied. */
  readonly state: 'verified' | 'there' | 'copy';
}

export interface MirrorPlan {
  readonly model: string;
  readonly directory: string;
  /** Most bytes that the mirror may have; null = what the drive holds. */
  readonly budgetBytes: number | null;
  /** To be left free on the drive. */
  readonly reserveBytes: number;
  readonly freeBytes: number;
  /** What would be free afterwards. */
  readonly projectedFreeBytes: number;
  /** Tokens in the history of use; 0 = none is known, and every expert counts the same. */
  readonly usageTokens: number;
  /** Those that belong into the mirror, the most useful per byte first. */
  readonly files: readonly PlannedFile[];
  /** Of all files of the model. */
  readonly modelFiles: number;
  readonly totalBytes: number;
  readonly copyBytes: number;
  /** Of what experts are read, the part whose files are all in the mirror: 0 to 1. */
  readonly expertShare: number;
  /** Why not more: no room within the budget or on the drive; null = all that helps is chosen. */
  readonly limit: 'budget' | 'space' | null;
  /** Files there with a name of the model that are no copies: they stay as they are. */
  readonly foreign: readonly string[];
  readonly notes: readonly string[];
}

export interface MirrorProgress {
  readonly phase: 'copy' | 'check' | 'compare';
  readonly file: string;
  readonly doneBytes: number;
  readonly totalBytes: number;
}

export interface StageReport {
  readonly plan: MirrorPlan;
  readonly copied: readonly string[];
  /** Were there already and are right. */
  readonly kept: readonly string[];
  /** Are there and are not copies; they were left as they are. */
  readonly foreign: readonly string[];
  readonly copiedBytes: number;
}

export interface VerifyReport {
  readonly model: string;
  readonly directory: string;
  /** What the files were held against: SHA-256 of the receipt, or the model's own bytes where there is no receipt. */
  readonly by: 'receipt' | 'model';
  readonly files: readonly { readonly name: string; readonly bytes: number; readonly problem: string | null }[];
  /** Of files without a problem. */
  readonly goodBytes: number;
}

export interface MirrorRun {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: MirrorProgress) => void;
}
