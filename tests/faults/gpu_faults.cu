// SPDX-License-Identifier: MIT
// gpu_faults.cu: faults of a GPU for programs that are not changed. As a program:
//   gpu_faults hold MEGABYTES_LEFT SECONDS     allocates all but so much memory of GPU 0, says "held", and waits
// As a library that the CUDA driver loads (CUDA_INJECTION64_PATH), by MLFF_INJECT:
//   hang:SECONDS     after so long, a kernel that never ends fills every multiprocessor of the program's own context
//   trap:SECONDS     after so long, a kernel of the program's context fails, and the context with it
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

static __global__ void never_end(volatile int *end)
{
    while (*end == 0) continue;
}

static __global__ void fail()
{
    __trap();
}

static void inject(bool hang, double seconds)
{
    int *end, *seen, n_multiprocessors = 0;
    cudaStream_t stream;
    usleep((useconds_t)(seconds * 1e6));
    if (cudaSetDevice(0) != cudaSuccess || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
    if (!hang) {
        fail<<<1, 1, 0, stream>>>();
        return;
    }
    cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    if (cudaHostAlloc((void **)&end, sizeof *end, cudaHostAllocMapped) != cudaSuccess) return;
    *end = 0;
    cudaHostGetDevicePointer((void **)&seen, end, 0);
    never_end<<<n_multiprocessors * 4, 1024, 0, stream>>>(seen); // two blocks fill a multiprocessor, the others wait for room
}

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void)
{
    const char *what = getenv("MLFF_INJECT");
    if (what && strchr(what, ':')) std::thread(inject, what[0] == 'h', atof(strchr(what, ':') + 1)).detach();
    return 1;
}

int main(int argc, char **argv)
{
    size_t left = 0, all = 0;
    void *memory;
    if (argc != 4 || strcmp(argv[1], "hold") != 0) {
        fprintf(stderr, "usage: gpu_faults hold MEGABYTES_LEFT SECONDS\n");
        return 2;
    }
    if (cudaMemGetInfo(&left, &all) != cudaSuccess || cudaMalloc(&memory, left - ((size_t)atol(argv[2]) << 20)) != cudaSuccess) {
        fprintf(stderr, "gpu_faults: no memory, or no GPU\n");
        return 1;
    }
    puts("held");
    fflush(stdout);
    sleep((unsigned)atol(argv[3]));
    return 0;
}
