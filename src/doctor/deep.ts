/** Checks that read every byte: only with --deep. */

import { hashes } from './hashes.ts';
import { mirrorHashes } from './mirror-hashes.ts';
import { scales } from './scales.ts';
import type { Check } from './types.ts';

const group = 'deep';

export const DEEP_CHECKS: readonly Check[] = [
  { id: 'model.hashes', group, needs: ['model.tensors'], deep: true, run: hashes },
  { id: 'model.scales', group, needs: ['model.tensors'], deep: true, run: scales },
  { id: 'mirror.hashes', group, needs: ['model.tensors'], deep: true, run: mirrorHashes },
];
