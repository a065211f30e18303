/** Which layout each tensor gets, by what it is for. */

import { ConvertError } from '../common/errors.ts';
import type { DenseRole } from '../models/family.ts';
import type { Layout } from '../quant/layouts.ts';
import type { ConvertParameters, DenseEncoding, ExpertEncoding } from './types.ts';

const EXPERT_LAYOUT = { q4g64: 'q4g64', q8: 'q8g64', bf16: 'bf16', source: 'source' } as const;
const DENSE_LAYOUT = { q8: 'q8g64', bf16: 'bf16' } as const;

/** `own`: the layout in which the source has it when it is loaded. */
export function denseLayout(role: DenseRole, own: Layout, dense: DenseEncoding): Layout {
  switch (role) {
    // small, and they decide which experts are chosen and how much counts
    case 'router':
    case 'gate':
    case 'norm':
    case 'vector':
      return 'f32';
    // chooses keys: what it has been given stays
    case 'indexer':
      return own;
    // taken apart and turned on loading, which keeps 16-bit floats and widens everything else
    case 'latent':
      return own === 'f16' ? 'f16' : 'bf16';
    default:
      return DENSE_LAYOUT[dense];
  }
}

/** A prediction head with four bits is refused too often by the model that it is to help. */
export function expertLayout(own: Layout, isPrediction: boolean, experts: ExpertEncoding): Layout {
  const layout = EXPERT_LAYOUT[experts];
  if (layout === 'source') return own;
  return isPrediction && layout === 'q4g64' ? 'q8g64' : layout;
}

/** Throws BAD_ENCODING. */
export function requireKnownEncodings({ experts, dense }: ConvertParameters): void {
  requireKnown('experts', experts, EXPERT_LAYOUT);
  requireKnown('dense', dense, DENSE_LAYOUT);
}

function requireKnown(flag: keyof ConvertParameters, value: string, known: Readonly<Record<string, string>>): void {
  if (Object.hasOwn(known, value)) return;
  throw new ConvertError('BAD_ENCODING', `${flag} cannot be ${value}; it is one of ${Object.keys(known).join(', ')}`, {
    details: { flag, got: value },
  });
}
