// SPDX-License-Identifier: MIT
// emulate_cuda.cc: the scheduler of emulate_cuda.h. x86-64 only (it switches stacks).
#include "emulate/emulate_cuda.h"

emulate_index threadIdx, blockIdx, blockDim, gridDim;

namespace emulate
{
fiber *current;
context scheduler;
std::vector<fiber> *fibers;

static const std::function<void()> *body_of_all;
enum { STACK_BYTES = 64 * 1024 + 128 }; // tops of stacks in different sets of the cache

extern "C" void emulate_enter()
{
    (*body_of_all)();
    current->done = true;
    yield();
    abort();
}

static bool can_go_on(const fiber &f)
{
    return !f.done && !(f.awaited && *f.awaited == f.seen);
}

// Lanes of a warp take turns for as long as they complete collectives: their stacks stay in the cache.
static void run_warp(fiber *first)
{
    for (unsigned before = first->warp->generation;; before = first->warp->generation) {
        fiber *f = first;
        while (f < first->warp_end && !can_go_on(*f)) f++;
        if (f == first->warp_end) return;
        current = f;
        threadIdx.x = f->thread;
        blockIdx.x = f->block;
        switch_context(&scheduler, &f->at);
        if (first->warp->generation == before) return;
    }
}

void run(int blocks, int threads, size_t shared_bytes, int cluster, int together, const std::function<void()> &body)
{
    gridDim.x = blocks;
    blockDim.x = threads;
    body_of_all = &body;
    std::vector<fiber> all((size_t)together * threads);
    fibers = &all;
    static std::vector<char *> &stacks = *new std::vector<char *>; // kept for later launches, never freed
    while (stacks.size() < all.size()) stacks.push_back((char *)aligned_alloc(64, STACK_BYTES));
    const int warps_of_block = (threads + 31) / 32;
    for (int first = 0; first < blocks; first += together) {
        std::vector<barrier_state> barriers((size_t)together * 16), of_clusters((size_t)together / cluster);
        std::vector<warp_state> warps((size_t)together * warps_of_block);
        std::vector<char *> shared;
        for (int r = 0; r < together; r++) {
            shared.push_back((char *)aligned_alloc(256, (shared_bytes + 511) / 256 * 256));
            memset(shared.back(), 0xff, (shared_bytes + 511) / 256 * 256);
        }
        for (int r = 0; r < together; r++)
            for (int t = 0; t < threads; t++) {
                const size_t n = (size_t)r * threads + t;
                void **top = (void **)(stacks[n] + STACK_BYTES - 64);
                *--top = nullptr; // the return address that emulate_enter never uses; the stack is aligned as after a call
                all[n] = fiber{{top, nullptr, (void *)emulate_enter},
                               t,
                               first + r,
                               r / cluster * cluster,
                               false,
                               &all[(size_t)r * threads] + std::min(t / 32 * 32 + 32, threads),
                               shared[r],
                               &warps[(size_t)r * warps_of_block + t / 32],
                               &barriers[(size_t)r * 16],
                               &of_clusters[r / cluster],
                               threads,
                               threads * cluster,
                               nullptr,
                               0};
            }
        for (bool left = true; left;) {
            left = false;
            for (fiber *f = all.data(), *end = f + all.size(); f < end; f = f->warp_end) {
                run_warp(f);
                for (fiber *lane = f; lane < f->warp_end && !left; lane++) left = !lane->done;
            }
        }
        for (char *s : shared) free(s);
    }
}
} // namespace emulate
