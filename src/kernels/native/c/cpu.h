// The variants, from the fastest to the plainest, and which of them this processor can run.
#ifndef COLI_CPU_H
#define COLI_CPU_H

#include "kernels.h"

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

#if defined(HAVE_avx512vnni)
extern const KernelTable kernels_avx512vnni;
#endif
#if defined(HAVE_avxvnni)
extern const KernelTable kernels_avxvnni;
#endif
#if defined(HAVE_avx2)
extern const KernelTable kernels_avx2;
#endif
#if defined(HAVE_neon)
extern const KernelTable kernels_neon;
#endif
extern const KernelTable kernels_scalar;

#if defined(__x86_64__)

// The compiler's tests include whether the operating system saves the registers.
static inline bool hasF16c(void) {
  // Leaf 1, ECX bit 29. Every processor with AVX2 has it, but a virtual machine may hide it.
  uint32_t a = 1, b, c = 0, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return c >> 29 & 1;
}

static inline bool hasAvx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx") && hasF16c(); }

static inline bool hasAvxVnni(void) {
  // Leaf 7, subleaf 1, EAX bit 4: not every supported compiler knows it by name.
  uint32_t a = 7, b, c = 1, d;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return hasAvx2() && (a >> 4 & 1);
}

static inline bool hasAvx512Vnni(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && hasF16c();
}

#elif defined(__aarch64__)

static inline bool hasDotProduct(void) {
#if defined(__APPLE__)
  return true;
#elif defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

#endif

static bool always(void) { return true; }

typedef struct {
  const char *name;
  const KernelTable *table;
  bool (*supported)(void);
} Variant;

static const Variant VARIANTS[] = {
#if defined(HAVE_avx512vnni)
    {"avx512vnni", &kernels_avx512vnni, hasAvx512Vnni},
#endif
#if defined(HAVE_avxvnni)
    {"avxvnni", &kernels_avxvnni, hasAvxVnni},
#endif
#if defined(HAVE_avx2)
    {"avx2", &kernels_avx2, hasAvx2},
#endif
#if defined(HAVE_neon)
    {"neon", &kernels_neon, hasDotProduct},
#endif
    {"scalar", &kernels_scalar, always},
};

enum { VARIANT_COUNT = sizeof VARIANTS / sizeof VARIANTS[0] };

#endif
