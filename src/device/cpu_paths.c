// SPDX-License-Identifier: MIT
// cpu_paths.c: fast paths of this build that this processor supports.
#include <string.h>

#include "device/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

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

static atomic_int small_extensions;

// Asked once: hypervisors answer CPUID themselves, in microseconds.
static bool found(bool (*find)(void), atomic_int *known)
{
    enum { UNKNOWN, NO, YES };
    if (atomic_load(known) == UNKNOWN) atomic_store(known, find() ? YES : NO);
    return atomic_load(known) == YES;
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2");
}

// Intel's Architecture Instruction Set Extensions: leaf 7, subleaf 1, EAX, bit 5.
static bool find_bfloat16(void)
{
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) != 0;
}

// Whether there are AMX tiles of bfloat16 and this process may use them: Linux grants their registers, of 8 KB, on request (arch_prctl, since
// version 5.16).
static bool find_tiles(void)
{
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    const unsigned tiles = 1u << 24 | 1u << 22; // AMX-TILE, AMX-BF16: leaf 7, EDX
    return find_bfloat16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles) == tiles &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

const char *const *mlff_cpu_paths(void)
{
#if defined(__x86_64__)
    static const char *const with_tiles[] = {"avx512", "amx", "avx2", "portable", NULL};
    static const char *const all[] = {"avx512", "avx2", "portable", NULL};
    static atomic_int tiles;
    if (!found(find_small_extensions, &small_extensions)) return portable;
    if (has_avx512()) return found(find_tiles, &tiles) ? with_tiles : all;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return all + 1;
    return portable;
#else
    return portable;
#endif
}

const char *cpu_vector_path(const char *path)
{
    return strcmp(path, "amx") == 0 ? "avx512" : path;
}

bool cpu_has_bfloat16(void)
{
#if defined(__x86_64__)
    static atomic_int bfloat16;
    return found(find_small_extensions, &small_extensions) && found(find_bfloat16, &bfloat16);
#else
    return false;
#endif
}
