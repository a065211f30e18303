// One variant: compiled once for each instruction set, with -DVARIANT=NAME and its machine options.
#include "attention.h"
#include "delta.h"
#include "elements.h"
#include "floats.h"
#include "indexer.h"
#include "quantise.h"
#include "routing.h"
#include "rows.h"
#include "tiles.h"

#define JOIN(a, b) a##b
#define TABLE(name) JOIN(kernels_, name)

const KernelTable TABLE(VARIANT) = {
    .quantise = quantise,
    .matmulTiles = matmulTiles,
    .matmulFloat = matmulFloat,
    .matmulExact = matmulExact,
    .embed = embed,
    .rmsNorm = rmsNorm,
    .layerNorm = layerNorm,
    .rope = rope,
    .attention = attention,
    .indexScores = indexScores,
    .selectKeys = selectKeys,
    .swiglu = swiglu,
    .add = add,
    .clamp = clamp,
    .toBf16 = toBf16,
    .softmax = softmax,
    .sigmoid = sigmoid,
    .sigmoidGate = sigmoidGate,
    .gateRows = gateRows,
    .addRows = addRows,
    .swigluClamped = swigluClamped,
    .copyColumns = copyColumns,
    .topK = topK,
    .combine = combine,
    .convSilu = convSilu,
    .deltaGates = deltaGates,
    .deltaRule = deltaRule,
    .allFinite = allFinite,
};
