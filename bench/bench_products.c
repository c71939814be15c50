// SPDX-License-Identifier: MIT
// bench_products.c: GFLOP/s of matrix products of the CPU's paths and precisions, one thread; matrices of 1 MB and more are read in turn, so that
// they come from the third cache, as weights of a model do. One JSON line a shape; the best of the trials.
// Usage: bench_products [TRIALS]   (12)
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "bench.h"
#include "mlff_device.h"
#include "nn/nn.h"

static const int shapes[][3] = {{96, 512, 256}, {96, 512, 512}, {64, 384, 128}, {64, 128, 128},
                                {36, 512, 512}, {16, 512, 512}, {6, 512, 512}}; // rows, outputs, inputs
static const char *const precisions[] = {[NN_FLOAT32] = "float32", [NN_TF32] = "tf32", [NN_BF16] = "bf16"};

static double speed(const nn_kernels *nn, int m, int n, int k, int n_trials)
{
    enum { MOST = 64 };
    const int wanted = 1 + (1 << 18) / (n * k), copies = wanted < MOST ? wanted : MOST;
    const double operations = 2.0 * m * n * k;
    const int calls = 1 + (int)(6e7 / operations);
    float *a = base_alloc((size_t)m * (size_t)k, sizeof *a, "a"), *b = base_alloc((size_t)k * (size_t)n, sizeof *b, "b");
    float *c = base_alloc((size_t)m * (size_t)n, sizeof *c, "c"), *packed[MOST];
    double best = INFINITY;
    for (int i = 0; i < m * k; i++) a[i] = sinf((float)i);
    for (int i = 0; i < n * k; i++) b[i] = cosf((float)i);
    for (int i = 0; i < copies; i++) {
        packed[i] = base_alloc(nn->packed_floats(k, n), sizeof *b, "b");
        nn->pack(k, n, b, packed[i]);
    }
    for (int trial = 0; trial < n_trials; trial++) {
        const double begun = bench_now_ms();
        for (int i = 0; i < calls; i++) nn->product_in_parts(m, n, k, a, k, packed[i % copies], NULL, c, n, 0);
        best = fmin(best, (bench_now_ms() - begun) / calls);
    }
    for (int i = 0; i < copies; i++) base_free(packed[i]);
    base_free(a);
    base_free(b);
    base_free(c);
    return operations / best * 1e-6;
}

int main(int argc, char **argv)
{
    const int n_trials = argc > 1 ? atoi(argv[1]) : 12;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int *shape = shapes[s];
        printf("{\"rows\": %d, \"outputs\": %d, \"inputs\": %d", shape[0], shape[1], shape[2]);
        for (const char *const *path = mlff_cpu_paths(); *path; path++)
            for (int p = NN_FLOAT32; p <= NN_BF16; p++) {
                const nn_kernels *nn = nn_kernels_get(*path, (enum nn_precision)p);
                if (nn)
                    printf(", \"%s_%s_gflops\": %.0f", *path, precisions[p], speed(nn, shape[0], shape[1], shape[2], n_trials));
            }
        printf("}\n");
        fflush(stdout);
    }
    return 0;
}
