/** What a server needs besides the engine, for the memory plan. */

import { MIB } from '../common/units.ts';

/** Placeholder until measured. */
export const SERVER_RESERVE_BYTES = 40 * MIB;
