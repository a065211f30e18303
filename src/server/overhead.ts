/** What a server needs besides the engine, for the memory plan. */

import { MIB } from '../common/units.ts';

/**
 * Added to the process by the server: 30 MiB for its code at the start, 65 after thousands of streamed answers, 133 while dozens of
 * clients send bodies of a megabyte as fast as they can; and a tenth more. Measured with `keepHeapsSmall`, without it 270.
 */
export const SERVER_RESERVE_BYTES = 148 * MIB;
