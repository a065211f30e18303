/** What a server needs besides the engine, for the memory plan, and what keeps it there. */

import v8 from 'node:v8';
import { MIB } from '../common/units.ts';

/**
 * Added to the process by the server: 30 MiB for its code at the start, 65 after thousands of streamed answers, 133 while dozens of
 * clients send bodies of a megabyte as fast as they can; and a tenth more. Measured with `keepHeapSmall`, without it 270.
 */
export const SERVER_RESERVE_BYTES = 148 * MIB;

/**
 * From here on the heaps of this process are collected before they grow by more than a fifth. By itself V8 lets them double, which
 * pays for programs that own their machine; here it would be memory that no plan knows of. Best after loading, which needs much.
 */
export function keepHeapSmall(): void {
  v8.setFlagsFromString('--semi-space-growth-factor=1');
  v8.setFlagsFromString('--heap-growing-percent=20');
}
