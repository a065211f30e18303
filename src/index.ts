/** Public interface of the package. */

export * from './common/errors.ts';
export type * from './engine/api.ts';
export { openEngine } from './engine/engine.ts';
