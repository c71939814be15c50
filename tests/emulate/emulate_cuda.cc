// SPDX-License-Identifier: MIT
// emulate_cuda.cc: the scheduler of emulate_cuda.h. x86-64 only (it switches stacks).
#include "emulate/emulate_cuda.h"

emulate_index threadIdx, blockIdx, blockDim, gridDim;

namespace emulate
{
fiber *current;
std::vector<fiber> *fibers;

static void *scheduler_pointer;
static const std::function<void()> *body_of_all;
enum { STACK_BYTES = 64 * 1024 };

extern "C" void emulate_switch(void **save, void *to);
asm(".text\n.globl emulate_switch\nemulate_switch:\n"
    "pushq %rbx\npushq %rbp\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbp\npopq %rbx\npopq %rcx\njmp *%rcx\n"); // ret would be mispredicted

extern "C" void emulate_enter()
{
    (*body_of_all)();
    current->done = true;
    emulate_switch(&current->stack_pointer, scheduler_pointer);
    abort();
}

void yield()
{
    emulate_switch(&current->stack_pointer, scheduler_pointer);
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
    for (int first = 0; first < blocks; first += together) {
        std::vector<barrier_state> barriers((size_t)together * 16), of_clusters((size_t)together / cluster);
        std::vector<warp_state> warps((size_t)together * threads / 32);
        std::vector<char *> shared;
        for (int r = 0; r < together; r++) {
            shared.push_back((char *)aligned_alloc(256, (shared_bytes + 511) / 256 * 256));
            memset(shared.back(), 0xff, (shared_bytes + 511) / 256 * 256);
        }
        for (int r = 0; r < together; r++)
            for (int t = 0; t < threads; t++) {
                fiber &f = all[(size_t)r * threads + t];
                char *stack = stacks[(size_t)r * threads + t];
                void **top = (void **)(stack + STACK_BYTES - 64);
                *--top = nullptr; // a return address emulate_enter never uses; keeps the stack aligned as after a call
                *--top = (void *)emulate_enter;
                for (int k = 0; k < 6; k++) *--top = nullptr;
                f = fiber{top,
                          stack,
                          t,
                          first + r,
                          r / cluster * cluster,
                          false,
                          shared[r],
                          &warps[((size_t)r * threads + t) / 32],
                          &barriers[(size_t)r * 16],
                          &of_clusters[r / cluster],
                          threads,
                          threads * cluster,
                          nullptr,
                          0};
            }
        for (size_t left = all.size(); left > 0;)
            for (fiber &f : all) {
                if (f.done || (f.awaited && *f.awaited == f.seen)) continue;
                current = &f;
                threadIdx.x = f.thread;
                blockIdx.x = f.block;
                emulate_switch(&scheduler_pointer, f.stack_pointer);
                if (f.done) left--;
            }
        for (char *s : shared) free(s);
    }
}
} // namespace emulate
