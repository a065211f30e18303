/** How a server behaves, apart from its model: what the flags of `coli serve` come to. */

export interface ServerSettings {
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
  /** The name clients know the model by. */
  readonly modelId: string;
  /** Further names that requests may ask for; replies name the first one. */
  readonly modelAliases: readonly string[];
  /** null = no key is asked for, and any is accepted. */
  readonly apiKey: string | null;
  /** Exact origins of web pages that may use the server. */
  readonly corsOrigins: readonly string[];
  /** Names besides the loopback ones and the bind address that a request may call the server by. */
  readonly allowedHosts: readonly string[];
  /** Allows a bind beyond this machine without a key. */
  readonly insecure: boolean;
  /** Requests that run together. */
  readonly slots: number;
  /** Requests that may wait. */
  readonly maxQueue: number;
  /** How long one may wait. */
  readonly queueTimeoutMs: number;
  /** How long running requests have after the order to stop. */
  readonly graceMs: number;
  /** Silence on a stream after which a keepalive is sent. */
  readonly keepaliveMs: number;
  /** Keepalives as comments; some clients cannot read them. */
  readonly keepaliveComments: boolean;
  /** How long a reader may take nothing before it loses its stream. */
  readonly stallMs: number;
  /** Prompts and answers may appear in the log. */
  readonly logPrompts: boolean;
  readonly version: string;
}

export const DEFAULT_SETTINGS: Omit<ServerSettings, 'modelId' | 'version'> = {
  host: '127.0.0.1',
  port: 8080,
  modelAliases: [],
  apiKey: null,
  corsOrigins: [],
  allowedHosts: [],
  insecure: false,
  slots: 1,
  maxQueue: 64,
  queueTimeoutMs: 600_000,
  graceMs: 30_000,
  keepaliveMs: 10_000,
  keepaliveComments: true,
  // a stream that only fills slowly is a slow network; one without a byte for minutes is nobody
  stallMs: 120_000,
  logPrompts: false,
};
