// Every export is a method of the Kernels interface (kernels.ts): same name, same arguments.

export { attention } from './attention';
export { convSilu, deltaGates, deltaRule } from './delta';
export {
  add, allFinite, clamp, sigmoid, sigmoidGate, swiglu, swigluClamped, toBf16,
} from './elementwise';
export { embed, matmulExact, matmulFloat } from './float-rows';
export { indexScores, selectKeys } from './indexer';
export { quantise } from './quantise';
export { combine, topK } from './routing';
export { addRows, copyColumns, gateRows, layerNorm, rmsNorm, rope } from './rows';
export { softmax } from './softmax';
export { matmulTiles } from './tiles';
