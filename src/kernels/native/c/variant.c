// One variant: compiled once for each instruction set, with -DVARIANT=NAME and its machine options.
#include "attention.h"
#include "floats.h"
#include "quantise.h"
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
    .rope = rope,
    .attention = attention,
    .swiglu = swiglu,
    .add = add,
    .scale = scale,
    .clamp = clamp,
    .toBf16 = toBf16,
    .softmax = softmax,
    .topK = topK,
    .combine = combine,
    .allFinite = allFinite,
};
