// SPDX-License-Identifier: MIT
// dense.c: dense layers of src/gpu/nn on a GPU: error against float64, and time. Built by hand or by bench/gpu/dense/run, since it needs
// the CUDA runtime and the kernels alone.
//
//   dense rows outputs inputs: for each precision and kind of tile the relative error, µs, TFLOP/s
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/nn/linear.h"

static void check(int error, const char *what)
{
    if (error == 0) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

static uint64_t state = 88172645463325252u;
static double normal(void)
{
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (double)(state >> 11) * 0x1p-53 - 0.5;
    }
    return sum * 1.7320508;
}

typedef struct weights {
    const double *w;
    int inputs;
} weights;

static double weight(const void *context, int n, int k)
{
    const weights *m = context;
    return m->w[(size_t)n * (size_t)m->inputs + (size_t)k];
}

static void *upload(const void *from, size_t bytes)
{
    void *to;
    check(cudaMalloc(&to, bytes), "cudaMalloc");
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return to;
}

static float to_bfloat(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &bits, 4);
    return v;
}

static gpu_operand upload_operand(const double *x, int rows, int columns, enum gpu_number numbers)
{
    const size_t plane = gpu_plane_bytes((size_t)rows, columns);
    uint16_t *high = calloc(1, plane), *low = calloc(1, plane);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const size_t at =
                (((size_t)(r / 64) * (size_t)(columns / 8) + (size_t)(c / 8)) * 64 + (size_t)(r % 64)) * 8 + (size_t)(c % 8);
            const double v = x[(size_t)r * (size_t)columns + (size_t)c];
            if (numbers == GPU_NUMBER_BF16) {
                high[at] = gpu_to_bfloat(v);
                low[at] = gpu_to_bfloat(v - to_bfloat((float)v));
            } else {
                high[at] = gpu_to_half(v);
                low[at] = gpu_to_half(v - gpu_from_half(high[at]));
            }
        }
    gpu_operand m = {upload(high, plane), upload(low, plane), columns};
    free(high), free(low);
    return m;
}

static double time_us(const gpu_dense *dense, const gpu_linear_plan *plan, cudaStream_t stream)
{
    enum { LAUNCHES = 20 };
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaEvent_t begin, end;
    float best = 1e30f;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int k = 0; k < LAUNCHES; k++) check(gpu_launch_dense(dense, plan, stream), "launch");
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "graph");
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int k = 0; k < 6; k++) {
        float ms;
        cudaEventRecord(begin, stream);
        check(cudaGraphLaunch(executable, stream), "launch");
        cudaEventRecord(end, stream);
        check(cudaEventSynchronize(end), "step");
        cudaEventElapsedTime(&ms, begin, end);
        if (k > 0 && ms < best) best = ms;
    }
    cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
    return 1e3 * best / LAUNCHES;
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: dense rows outputs inputs\n"), 1;
    const int rows = atoi(argv[1]), outputs = atoi(argv[2]), inputs = atoi(argv[3]);
    static const char *const names[] = {"float32", "tf32", "bf16"};
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    check(cudaGetDeviceProperties(&properties, 0), "device");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    const int hopper = properties.major == 9;
    check(gpu_prepare_dense(hopper), "prepare");
    double *x = malloc(sizeof *x * (size_t)rows * (size_t)inputs), *w = malloc(sizeof *w * (size_t)outputs * (size_t)inputs);
    float *bias = malloc(sizeof *bias * (size_t)outputs);
    for (size_t k = 0; k < (size_t)rows * (size_t)inputs; k++) x[k] = normal();
    for (size_t k = 0; k < (size_t)outputs * (size_t)inputs; k++) w[k] = normal() / sqrt(inputs);
    for (int n = 0; n < outputs; n++) bias[n] = (float)normal();
    const weights source = {w, inputs};
    float *values, *got = malloc(sizeof *got * (size_t)rows * (size_t)outputs);
    check(cudaMalloc((void **)&values, sizeof *values * (size_t)rows * (size_t)outputs), "cudaMalloc");
    int32_t *n_rows = upload(&rows, sizeof rows);
    for (int numbers = 0; numbers < 3; numbers++) {
        gpu_packer p = {NULL, NULL, 0};
        gpu_pack_linear(&p, (enum gpu_number)numbers, outputs, inputs, bias, weight, &source);
        char *block = calloc(1, p.at), *device;
        check(cudaMalloc((void **)&device, p.at), "cudaMalloc");
        gpu_packer q = {block, device, 0};
        gpu_dense dense = {.product.layer =
                               gpu_pack_linear(&q, (enum gpu_number)numbers, outputs, inputs, bias, weight, &source)};
        check(cudaMemcpy(device, block, q.at, cudaMemcpyHostToDevice), "copy");
        dense.product.a[0] = upload_operand(x, rows, inputs, (enum gpu_number)numbers);
        dense.product.n_rows = n_rows;
        dense.product.rows = rows;
        dense.activation = GPU_SILU;
        gpu_operand out = {NULL, NULL, outputs};
        check(cudaMalloc(&out.high, gpu_plane_bytes((size_t)rows, outputs)), "cudaMalloc");
        if (numbers == 0) check(cudaMalloc(&out.low, gpu_plane_bytes((size_t)rows, outputs)), "cudaMalloc");
        check(cudaDeviceSynchronize(), "uploads"); // small copies are asynchronous, and `stream` does not wait for them
        for (int wide = 0; wide < (hopper ? 3 : 1); wide++) {
            gpu_linear_plan plan = {(enum gpu_number)numbers, wide, properties.multiProcessorCount, 0};
            dense.values = values, dense.stride = outputs, dense.out.high = NULL;
            check(cudaMemsetAsync(values, 0xff, sizeof *values * (size_t)rows * (size_t)outputs, stream), "memset");
            check(gpu_launch_dense(&dense, &plan, stream), "launch");
            check(cudaStreamSynchronize(stream), "step");
            check(cudaMemcpy(got, values, sizeof *got * (size_t)rows * (size_t)outputs, cudaMemcpyDeviceToHost), "copy");
            double error = 0, size = 0;
            for (int r = 0; r < rows; r += rows / 37 + 1)
                for (int n = 0; n < outputs; n++) {
                    double y = bias[n];
                    for (int k = 0; k < inputs; k++)
                        y += x[(size_t)r * (size_t)inputs + (size_t)k] * w[(size_t)n * (size_t)inputs + (size_t)k];
                    y = y / (1 + exp(-y));
                    const double d = got[(size_t)r * (size_t)outputs + (size_t)n] - y;
                    error += d * d, size += y * y;
                }
            dense.values = NULL, dense.out = out;
            const double us = time_us(&dense, &plan, stream);
            plan.overlap = hopper;
            const double overlapped = time_us(&dense, &plan, stream);
            printf("%d x %d x %d %s wide %d: error %.1e, %.2f us, overlapped %.2f us, %.0f TFLOP/s\n", rows, outputs, inputs,
                   names[numbers], wide, sqrt(error / size), us, overlapped,
                   2e-6 * (numbers ? 1 : 3) * rows * (double)outputs * inputs / fmin(us, overlapped));
        }
        free(block);
        cudaFree(device);
    }
    return 0;
}
