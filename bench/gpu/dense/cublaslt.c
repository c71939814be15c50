// SPDX-License-Identifier: MIT
// cublaslt.c: the dense layers of dense.c by cuBLASLt, opened at run time, for comparison. Built by hand with cublasLt.h of a CUDA toolkit.
// y [rows][outputs] = x [rows][inputs] Wᵀ + b: a product of float32 numbers in full precision or as TF32, or of halves or bfloat16 numbers
// with results in 16 bits; the fastest of the algorithms that the library proposes. The bias is added; SiLU, which its epilogues do not
// have, is not applied.
//
//   cublaslt rows outputs inputs: for each number format µs and TFLOP/s
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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
    check(cudaMemset(l.weights, 0x11, outputs * inputs * 4), "memset");
    check(cudaMemset(l.in, 0x12, rows * inputs * 4), "memset");
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
        for (int k = 0; k < n; k++) {
            const double us = time_us(&lt, &l, &found[k].algo, stream);
            if (us < best) best = us;
        }
        printf("%zu x %zu x %zu cuBLASLt %s: %.2f us, %.0f TFLOP/s, best of %d algorithms\n", rows, outputs, inputs,
               formats[f].name, best, 2e-6 * (double)rows * (double)outputs * (double)inputs / best, n);
        fflush(stdout);
    }
    return 0;
}
