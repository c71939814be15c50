/* SPDX-License-Identifier: MIT */
/* emulate_threads.h: CUDA's threads as fibers: how one is suspended until others have arrived, exchanges of a warp, blocks that run together, and
 * the order in which kernels run that may overlap (emulate_cuda.cc). Part of emulate_cuda.h. */
#ifndef EMULATE_THREADS_H
#define EMULATE_THREADS_H

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

/* Reads and writes the emulator's own memory only: sanitizers check kernels. */
#define EMULATE_OWN __attribute__((no_sanitize("address", "undefined")))

namespace emulate
{
struct warp_state {
    int arrived = 0;
    unsigned generation = 0;
    uint64_t in[2][32];
    alignas(16) float rows[2][16][16], columns[2][8][16]; // operands of a product, 16 (or 8) numbers along k each
};
struct barrier_state {
    int arrived = 0;
    unsigned generation = 0;
};
struct context { // of what is suspended
    void *stack, *frame, *resume;
};
struct fiber {
    context at;
    int thread, block, cluster_first; /* of the blocks that run together, its cluster's first */
    bool done;
    fiber *warp_end; /* behind the warp's last lane */
    char *shared;
    warp_state *warp;
    barrier_state *block_barrier /* [16] */, *cluster_barrier;
    int block_threads, cluster_threads;
    const unsigned *awaited; // not resumed while this has the value `seen`
    unsigned seen;
};
#pragma GCC visibility push(hidden)
extern fiber *current;
extern context scheduler;
extern std::vector<fiber> *fibers;
extern uint64_t clock_ns; /* grows with what is done */
extern int64_t steps;     /* emulate_counts.steps, of blocks that have ended */
#pragma GCC visibility pop
__attribute__((always_inline)) inline fiber &self()
{
    return *current;
}
/* In place, not a call: lanes in lockstep resume at one instruction and below the same callers, both of which the CPU predicts. */
__attribute__((always_inline)) inline void switch_context(context *from, const context *to)
{
    asm volatile("movq %%rsp, (%0)\n\tmovq %%rbp, 8(%0)\n\tleaq 1f(%%rip), %%rax\n\tmovq %%rax, 16(%0)\n\t"
                 "movq (%1), %%rsp\n\tmovq 8(%1), %%rbp\n\tjmp *16(%1)\n1:"
                 : "+D"(from), "+S"(to)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
                   "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
                   "cc", "memory");
}
/* To the warp's next lane that can go on; after the last one to the scheduler. */
EMULATE_OWN inline void yield()
{
    fiber *const me = current, *next = me + 1;
    while (next < me->warp_end && (next->done || (next->awaited && *next->awaited == next->seen))) next++;
    if (next == me->warp_end) {
        switch_context(&me->at, &scheduler);
    } else {
        current = next;
        threadIdx.x = next->thread;
        switch_context(&me->at, &next->at);
    }
}
EMULATE_OWN inline void wait_until_changed(const unsigned &generation, unsigned seen)
{
    fiber *const me = current;
    me->awaited = &generation;
    me->seen = seen;
    while (generation == seen) yield();
    me->awaited = nullptr;
}
struct block_set;
/* A launched kernel. `together`: blocks that run at once, a multiple of the cluster. */
struct launch_shape {
    int blocks, threads;
    size_t shared_bytes;
    int cluster, together;
    std::function<void()> body;
};
class grid
{
  public:
    explicit grid(const launch_shape &launched);
    ~grid();
    void begin();       // some blocks, until their threads wait for the previous kernel
    bool starts_next(); // these let the next kernel start already
    bool never_waits(); // all blocks have ended already
    void finish();      // all blocks

  private:
    const launch_shape &shape;
    std::vector<block_set *> begun; // of the sets of blocks; NULL: not begun
};
extern bool delays_work; /* MLFF_EMULATE_DELAY */
void later(std::function<void()> work);
void copy_later(void *shared, const void *global);
void commit_copies();
void wait_for_copies(size_t groups);
void hold();    /* until the previous kernel is complete */
void trigger(); /* the next kernel may start */
/* What a lane gave to the last exchange: kept in its half of the buffer until the collective after the next. */
template <typename T> EMULATE_OWN T given(int lane)
{
    const warp_state &w = *self().warp;
    T value;
    memcpy(&value, &w.in[(w.generation - 1) & 1][lane & 31], sizeof value);
    return value;
}
template <typename T> EMULATE_OWN T exchange(T value, int source)
{
    warp_state &w = *self().warp;
    const unsigned g = w.generation;
    memcpy(&w.in[g & 1][self().thread % 32], &value, sizeof value);
    if (++w.arrived == 32) {
        w.arrived = 0;
        w.generation++;
    }
    wait_until_changed(w.generation, g);
    return given<T>(source);
}
EMULATE_OWN inline void wait(barrier_state &b, int n)
{
    unsigned g = b.generation;
    if (++b.arrived == n) {
        b.arrived = 0;
        b.generation++;
    }
    wait_until_changed(b.generation, g);
}
} // namespace emulate

#endif
