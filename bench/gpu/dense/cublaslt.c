// SPDX-License-Identifier: MIT
// cublaslt.c: the dense layers of dense.c by cuBLASLt, opened at run time, for comparison. Built by hand with cublasLt.h of a CUDA toolkit.
// y [rows][outputs] = x [rows][inputs] Wᵀ + b: a product of float32 numbers in full precision or as TF32, or of halves or bfloat16 numbers
// with results in 16 bits; the fastest of the algorithms that the library proposes. The bias is added; SiLU, which its epilogues do not
// have, is not applied. Operands are random: with constant ones a GPU draws less power and computes faster. A sample of the results of each
// format is compared with float64.
//
//   cublaslt rows outputs inputs: for each number format the error, µs and TFLOP/s
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int error, const char *what)
{
    if (error == 0) return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(1);
}

typedef struct library {
    __typeof__(&cublasLtCreate) create;
    __typeof__(&cublasLtMatmulDescCreate) operation_create;
    __typeof__(&cublasLtMatmulDescSetAttribute) operation_set;
    __typeof__(&cublasLtMatrixLayoutCreate) layout_create;
    __typeof__(&cublasLtMatmulPreferenceCreate) preference_create;
    __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    __typeof__(&cublasLtMatmulAlgoGetHeuristic) propose;
    __typeof__(&cublasLtMatmul) multiply;
} library;

static library open_library(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"};
    void *file = NULL;
    for (size_t k = 0; !file && k < sizeof names / sizeof *names; k++) file = dlopen(names[k], RTLD_NOW);
    if (!file) {
        fprintf(stderr, "libcublasLt: %s\n", dlerror());
        exit(1);
    }
    library l;
#define FIND(field, symbol) *(void **)&l.field = dlsym(file, #symbol)
    FIND(create, cublasLtCreate);
    FIND(operation_create, cublasLtMatmulDescCreate);
    FIND(operation_set, cublasLtMatmulDescSetAttribute);
    FIND(layout_create, cublasLtMatrixLayoutCreate);
    FIND(preference_create, cublasLtMatmulPreferenceCreate);
    FIND(preference_set, cublasLtMatmulPreferenceSetAttribute);
    FIND(propose, cublasLtMatmulAlgoGetHeuristic);
    FIND(multiply, cublasLtMatmul);
#undef FIND
    return l;
}

typedef struct format {
    const char *name;
    cudaDataType type;
    cublasComputeType_t compute;
    int bytes;
} format;

enum { PROPOSALS = 16, LAUNCHES = 20, WORKSPACE = 64 << 20 };

// Random numbers of magnitude 0.5 to 1 in a format, and their values.
static uint64_t state = 88172645463325252u;
static void fill(const format *f, size_t n, void *bytes)
{
    for (size_t k = 0; k < n; k++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const uint32_t bits = (uint32_t)(state >> 16);
        if (f->bytes == 4)
            ((uint32_t *)bytes)[k] = (bits & 0x807fffffu) | 0x3f000000u;
        else if (f->type == CUDA_R_16F)
            ((uint16_t *)bytes)[k] = (uint16_t)((bits & 0x83ffu) | 0x3800u);
        else
            ((uint16_t *)bytes)[k] = (uint16_t)((bits & 0x807fu) | 0x3f00u);
    }
}
static double value(const format *f, const void *bytes, size_t k)
{
    uint32_t bits;
    float v;
    if (f->type == CUDA_R_16F) {
        const uint16_t h = ((const uint16_t *)bytes)[k];
        const int exponent = h >> 10 & 31;
        const double m = exponent ? ldexp(1024 + (h & 1023), exponent - 25) : ldexp(h & 1023, -24);
        return h & 0x8000 ? -m : m;
    }
    bits = f->bytes == 4 ? ((const uint32_t *)bytes)[k] : (uint32_t)((const uint16_t *)bytes)[k] << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

typedef struct layer {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t w, x, y;
    void *weights, *in, *out, *workspace;
} layer;

static double time_us(const library *lt, const layer *l, const cublasLtMatmulAlgo_t *algorithm, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaEvent_t begin, end;
    float best = 1e30f;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    int failed = 0;
    for (int k = 0; k < LAUNCHES && !failed; k++)
        failed = lt->multiply(l->handle, l->operation, &one, l->weights, l->w, l->in, l->x, &zero, l->out, l->y, l->out, l->y,
                              algorithm, l->workspace, WORKSPACE, stream);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    if (failed) return 1e30;
    check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int k = 0; k < 6; k++) {
        float ms;
        check(cudaEventRecord(begin, stream), "event");
        check(cudaGraphLaunch(executable, stream), "launch");
        check(cudaEventRecord(end, stream), "event");
        check(cudaEventSynchronize(end), "step");
        check(cudaEventElapsedTime(&ms, begin, end), "event");
        if (k > 0 && ms < best) best = ms;
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return 1e3 * best / LAUNCHES;
}

// Root mean square error of some rows, relative to their size.
static double error_of(const format *f, size_t rows, size_t outputs, size_t inputs, const void *w, const void *x, const void *y)
{
    double error = 0, size = 0;
    for (size_t r = 0; r < rows; r += rows / 7 + 1)
        for (size_t n = 0; n < outputs; n += 5) {
            double sum = 0;
            for (size_t k = 0; k < inputs; k++) sum += value(f, x, r * inputs + k) * value(f, w, n * inputs + k);
            const double d = value(f, y, r * outputs + n) - sum;
            error += d * d, size += sum * sum;
        }
    return sqrt(error / size);
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: cublaslt rows outputs inputs\n"), 1;
    static const format formats[] = {{"float32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
                                     {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
                                     {"half", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2},
                                     {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2}};
    const size_t rows = (size_t)atol(argv[1]), outputs = (size_t)atol(argv[2]), inputs = (size_t)atol(argv[3]);
    const library lt = open_library();
    layer l = {0};
    cudaStream_t stream;
    void *bias;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(lt.create(&l.handle), "cublasLtCreate");
    check(cudaMalloc(&l.weights, outputs * inputs * 4), "cudaMalloc");
    check(cudaMalloc(&l.in, rows * inputs * 4), "cudaMalloc");
    check(cudaMalloc(&l.out, rows * outputs * 4), "cudaMalloc");
    check(cudaMalloc(&l.workspace, WORKSPACE), "cudaMalloc");
    check(cudaMalloc(&bias, outputs * 4), "cudaMalloc");
    void *w = malloc(outputs * inputs * 4), *x = malloc(rows * inputs * 4), *y = malloc(rows * outputs * 4);
    if (!w || !x || !y) return fprintf(stderr, "no memory\n"), 1;
    check(cudaMemset(bias, 0, outputs * 4), "memset");
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const cublasOperation_t transposed = CUBLAS_OP_T;
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const size_t room = WORKSPACE;
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulHeuristicResult_t found[PROPOSALS];
        int n = 0;
        double best = 1e30;
        check(lt.operation_create(&l.operation, formats[f].compute, CUDA_R_32F), "operation");
        check(lt.operation_set(l.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "operation");
        check(lt.operation_set(l.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "operation");
        check(lt.operation_set(l.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias), "operation");
        // Columns first: W (inputs × outputs) transposed times x (inputs × rows) is y (outputs × rows).
        check(lt.layout_create(&l.w, formats[f].type, inputs, outputs, (int64_t)inputs), "layout");
        check(lt.layout_create(&l.x, formats[f].type, inputs, rows, (int64_t)inputs), "layout");
        check(lt.layout_create(&l.y, formats[f].type, outputs, rows, (int64_t)outputs), "layout");
        check(lt.preference_create(&preference), "preference");
        check(lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room), "preference");
        check(lt.propose(l.handle, l.operation, l.w, l.x, l.y, l.y, preference, PROPOSALS, found, &n), "heuristic");
        fill(&formats[f], outputs * inputs, w);
        fill(&formats[f], rows * inputs, x);
        check(cudaMemcpy(l.weights, w, outputs * inputs * (size_t)formats[f].bytes, cudaMemcpyHostToDevice), "copy");
        check(cudaMemcpy(l.in, x, rows * inputs * (size_t)formats[f].bytes, cudaMemcpyHostToDevice), "copy");
        check(cudaDeviceSynchronize(), "uploads"); // the stream does not wait for them
        for (int k = 0; k < n; k++) {
            const double us = time_us(&lt, &l, &found[k].algo, stream);
            if (us < best) best = us;
        }
        check(cudaMemcpy(y, l.out, rows * outputs * (size_t)formats[f].bytes, cudaMemcpyDeviceToHost), "copy");
        printf("%zu x %zu x %zu cuBLASLt %s: error %.1e, %.2f us, %.0f TFLOP/s, best of %d algorithms\n", rows, outputs, inputs,
               formats[f].name, error_of(&formats[f], rows, outputs, inputs, w, x, y), best,
               2e-6 * (double)rows * (double)outputs * (double)inputs / best, n);
        fflush(stdout);
    }
    free(w), free(x), free(y);
    return 0;
}
