// Every export is a method of the Kernels interface (kernels.ts): same name, same arguments.

export { attention } from './attention';
export { add, allFinite, clamp, combine, scale, swiglu, toBf16 } from './elementwise';
export { embed, matmulExact, matmulFloat } from './float-rows';
export { quantise } from './quantise';
export { rmsNorm, rope, softmax, topK } from './rows';
export { matmulTiles } from './tiles';
