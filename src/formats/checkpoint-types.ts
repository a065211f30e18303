/** The Checkpoint noun: a read-only view of a model directory. Opening one reads headers only, never tensor data. */

/** Of safetensors files. */
export type SafetensorsDtype =
  | 'F64'
  | 'F32'
  | 'F16'
  | 'BF16'
  | 'F8_E4M3'
  | 'F8_E5M2'
  | 'F8_E8M0'
  | 'F4'
  | 'I64'
  | 'I32'
  | 'I16'
  | 'I8'
  | 'U64'
  | 'U32'
  | 'U16'
  | 'U8'
  | 'BOOL';

/** Blocks of GGUF files. Floats of GGUF files have the names above. */
export type GgufBlockDtype =
  | 'Q4_0'
  | 'Q4_1'
  | 'Q5_0'
  | 'Q5_1'
  | 'Q8_0'
  | 'Q2_K'
  | 'Q3_K'
  | 'Q4_K'
  | 'Q5_K'
  | 'Q6_K'
  | 'IQ4_NL'
  | 'IQ4_XS'
  | 'MXFP4';

export type Dtype = SafetensorsDtype | GgufBlockDtype;

export interface TensorInfo {
  readonly name: string;
  /** Index into `Checkpoint.files`. */
  readonly file: number;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Absolute position of the first byte in the file. */
  readonly offset: number;
  readonly bytes: number;
}

/** What identifies a shard while a process uses it; a change of any field is MODEL_CHANGED. */
export interface FileIdentity {
  /** Absolute path as opened (symlinks are followed when reading). */
  readonly path: string;
  readonly bytes: number;
  readonly mtimeMs: number;
  readonly inode: number;
}

/** Our own container's `coli.index.json` (docs/formats.md), already validated. */
export interface ContainerIndex {
  readonly version: number;
  /** Which `coli` wrote it and from what; informational. */
  readonly writer: string;
  /** What it was converted from; null or absent when that is not known. */
  readonly source?: Readonly<Record<string, unknown>> | null;
  /** Encoding name of `quant/` and true shape of every matrix that is not a plain float tensor. */
  readonly matrices: ReadonlyMap<string, { encoding: string; rows: number; columns: number }>;
  /** One entry per expert record tensor: parts in record order (gate, up, down). */
  readonly experts: ReadonlyMap<
    string,
    { parts: readonly { role: string; encoding: string; rows: number; columns: number; offset: number }[] }
  >;
  /** Tensor name -> lower-case hex SHA-256 of its bytes. */
  readonly sha256: ReadonlyMap<string, string>;
}

export interface Checkpoint {
  /** What the user named: a directory, or a GGUF file. */
  readonly directory: string;
  /** Parsed config.json (shape unchecked: each family has its schema). */
  readonly config: Readonly<Record<string, unknown>>;
  readonly generationConfig: Readonly<Record<string, unknown>> | null;
  readonly files: readonly FileIdentity[];
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly container: ContainerIndex | null;
  /** Weight-like files in the directory that no index names; they are not read. */
  readonly ignoredFiles: readonly string[];
  /** Tensors that a shard holds although the index does not list them; they are in `tensors` like all others. */
  readonly unindexedTensors?: readonly string[];
  /** Sum of the sizes of `files`. */
  readonly bytesOnDisk: number;
  /** Of GGUF files, whose metadata take the place of all JSON files. `tokenizerBytes`: vocabulary and merges. */
  readonly gguf?: { readonly tokenizerBytes: number };
}
