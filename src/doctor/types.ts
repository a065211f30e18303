/** What a check is, what it finds, and what it may look at. */

import type { EngineOptions } from '../engine/api.ts';
import type { ModelFiles } from '../engine/model-files.ts';
import type { KernelSources } from '../kernels/select.ts';
import type { Family } from '../models/family.ts';
import type { OpenFunction } from '../storage/open-files.ts';
import type { TextService } from '../tokenizer/text-service.ts';

/** `skip`: it could not be looked at, or does not apply. */
export type Status = 'pass' | 'warn' | 'fail' | 'skip';

export const GROUPS = ['machine', 'model', 'storage', 'sidecars', 'deep'] as const;
export type Group = (typeof GROUPS)[number];

/** What one check found. */
export interface Finding {
  readonly status: Status;
  /** One short line without paths; a failure's may be long. */
  readonly summary: string;
  /** Machine-readable facts; plain JSON. */
  readonly details: Readonly<Record<string, unknown>>;
  /** What to do; null when nothing is to be done. */
  readonly fix: string | null;
}

export interface CheckResult extends Finding {
  readonly id: string;
  readonly group: Group;
}

export interface Check {
  /** Stable: programs test for it. */
  readonly id: string;
  readonly group: Group;
  /** Checks without whose success there is nothing to look at: they stand before this one. */
  readonly needs: readonly string[];
  /** Only with --deep, which reads every byte. */
  readonly deep?: true;
  /** Reads only. What it throws is a failure with the code of the error. */
  run(context: Context): Finding | Promise<Finding>;
}

export interface DoctorOptions extends Omit<EngineOptions, 'model'> {
  /** Where the model lies: a directory or a GGUF file. May throw, which is then what is wrong with the path. */
  readonly locate: () => string;
  readonly deep?: boolean;
  /** Leaves out what takes time: measuring the disk. */
  readonly quick?: boolean;
  /** Ends a deep check early; what it found until then is told. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: DoctorProgress) => void;
}

export interface DoctorProgress {
  readonly id: string;
  readonly doneBytes: number;
  readonly totalBytes: number;
}

/** Where facts of the machine come from; tests hand in others. */
export interface Host {
  /** A directory other than / only in tests. */
  readonly root: string;
  readonly nodeVersion: string;
  readonly kernelSources: KernelSources | undefined;
  readonly openFile: OpenFunction | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Shared by all checks of one run. What one check fills in is there for those that need that check, and may be for others. */
export interface Context {
  readonly options: DoctorOptions;
  readonly host: Host;
  readonly found: {
    /** model.path: as `locate` gave it. */
    path?: string;
    /** model.config */
    config?: Readonly<Record<string, unknown>>;
    /** model.family */
    family?: Family;
    /** model.tensors */
    files?: ModelFiles;
    /** model.tokenizer; closed at the end. */
    text?: TextService;
  };
}
