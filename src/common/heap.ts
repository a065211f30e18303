/** How JavaScript heaps of this process grow. Sizes of their own belong to the plan; see engine/overhead.ts. */

import v8 from 'node:v8';

/**
 * From here on no thread's space for new objects grows. By itself V8 lets each grow to many megabytes before it looks for garbage,
 * which pays for programs that own their machine; here it would be memory that no plan knows of: 25 MiB and more after some
 * thousand requests.
 */
export function keepYoungSpacesSmall(): void {
  v8.setFlagsFromString('--semi-space-growth-factor=1');
}

/**
 * From here on heaps are collected before they grow by more than a fifth, instead of before they double. Best after loading, which
 * needs much.
 */
export function keepHeapsSmall(): void {
  keepYoungSpacesSmall();
  v8.setFlagsFromString('--heap-growing-percent=20');
}
