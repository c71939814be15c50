// SPDX-License-Identifier: MIT
// cpu.c: fast paths of this build that this processor supports.
#include "device/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <xmmintrin.h>
#endif
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const char *const portable[] = {"portable", NULL};

#if defined(__x86_64__)
// Instructions of x86-64-v3 other than AVX2, which virtual machines sometimes mask: BMI1, LZCNT, MOVBE, F16C.
static bool find_small_extensions(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_MOVBE) || !(c & bit_F16C)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_BMI)) return false;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT);
}

// Asked once: hypervisors answer CPUID themselves, in microseconds.
static bool has_small_extensions(void)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int known;
    if (atomic_load(&known) == UNKNOWN) atomic_store(&known, find_small_extensions() ? YES : NO);
    return atomic_load(&known) == YES;
}
#endif

const char *const *mlff_cpu_paths(void)
{
#if defined(__x86_64__)
    if (!has_small_extensions()) return portable;
    static const char *const all[] = {"avx512", "avx2", "portable", NULL};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2"))
        return all;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return all + 1;
    return all + 2;
#else
    return portable;
#endif
}

// Intel's Architecture Instruction Set Extensions: leaf 7, subleaf 1, EAX, bit 5. The instructions use what "avx512" checks.
bool cpu_has_bfloat16(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return strcmp(mlff_cpu_paths()[0], "avx512") == 0 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) != 0;
#else
    return false;
#endif
}

mlff_status cpu_path_choose(const char *wanted, const char **path_out)
{
    const char *origin = "cpu_path";
    if (!wanted) {
        wanted = getenv("MLFF_CPU");
        origin = "MLFF_CPU";
    }
    const char *const *paths = mlff_cpu_paths();
    if (!wanted || !*wanted) {
        *path_out = paths[0];
        return MLFF_OK;
    }
    for (int i = 0; paths[i]; i++)
        if (strcmp(paths[i], wanted) == 0) {
            *path_out = paths[i];
            return MLFF_OK;
        }
    return mlff_fail(MLFF_ERR_USAGE, "%s: '%s' is not a fast path this machine runs; the best here is '%s'", origin, wanted,
                     paths[0]);
}

// Intel's Software Developer's Manual, volume 1, 10.2.3: bits 15 (results) and 6 (operands) of MXCSR. Arm's Architecture Reference
// Manual, FPCR: bit 24 is both.
uint64_t cpu_flush_subnormals(void)
{
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 1u << 15 | 1u << 6);
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" ::"r"(before | 1u << 24) : "memory");
    return before;
#else
    return 0;
#endif
}

void cpu_rounding_restore(uint64_t before)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(before) : "memory");
#else
    (void)before;
#endif
}
