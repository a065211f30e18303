/** All checks, in the order in which they run: what others need comes first. Each id is described in docs/doctor.md. */

import { DEEP_CHECKS } from './deep.ts';
import { FIT_CHECKS, MACHINE_CHECKS } from './machine.ts';
import { MODEL_CHECKS } from './model.ts';
import { SIDECAR_CHECKS } from './sidecars.ts';
import { STORAGE_CHECKS } from './storage.ts';
import { TEXT_CHECKS } from './text.ts';
import type { Check } from './types.ts';

export const CHECKS: readonly Check[] = [
  ...MACHINE_CHECKS,
  ...MODEL_CHECKS,
  ...TEXT_CHECKS,
  ...FIT_CHECKS,
  ...STORAGE_CHECKS,
  ...SIDECAR_CHECKS,
  ...DEEP_CHECKS,
];
