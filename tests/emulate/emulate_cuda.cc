// SPDX-License-Identifier: MIT
// emulate_cuda.cc: the scheduler of emulate_cuda.h. x86-64 only (it switches stacks).
#include "emulate/emulate_cuda.h"

#include <deque>
#include <unordered_map>

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

// ---- delays (MLFF_EMULATE_DELAY)

// Rounds in which a warp, or now and then a whole block, does not run, from a collective on. Mostly few, sometimes so many that the others go on
// as far as they can.
struct delays {
    uint64_t state;
    std::vector<long> until; // of each warp: the round in which it goes on
    int warps_of_block;
    long round = 0;

    delays(uint64_t seed, size_t n_warps, int warps) : state(seed), until(n_warps, 0), warps_of_block(warps)
    {
    }
    uint32_t random()
    {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; // xorshift
        return (uint32_t)(state >> 32);
    }
    bool is_delayed(size_t warp) const
    {
        return until[warp] > round;
    }
    // Asked after each collective of a warp.
    bool begins(size_t warp)
    {
        static const long longest[4] = {2, 8, 40, 200};
        if (random() % 32 > 0) return false;
        const bool block = random() % 4 == 0;
        const size_t first = block ? warp / warps_of_block * warps_of_block : warp, n = block ? warps_of_block : 1;
        const long end = round + 1 + random() % longest[random() % 4];
        for (size_t w = first; w < first + n; w++) until[w] = end;
        return true;
    }
    // Asynchronous work, with the round in which it is done; in any order.
    struct pending_work {
        long round;
        std::function<void()> work;
    };
    std::vector<pending_work> pending;
    void put_off(std::function<void()> work)
    {
        static const long longest[4] = {1, 2, 6, 30};
        pending.push_back({round + random() % longest[random() % 4], std::move(work)});
    }
    // What is due, or all.
    void work_off(bool all)
    {
        size_t kept = 0;
        for (size_t k = 0; k < pending.size(); k++) {
            if (all || pending[k].round <= round)
                pending[k].work();
            else
                pending[kept++] = std::move(pending[k]);
        }
        pending.resize(kept);
    }
};
bool delays_work;
static delays *at_work;

void later(std::function<void()> work)
{
    at_work->put_off(std::move(work));
}

// Copies of a thread: done when they are committed, or not before they are waited for.
struct thread_copies {
    typedef std::vector<std::pair<void *, const void *>> group;
    group open;
    std::deque<group> committed;
};
static std::unordered_map<const fiber *, thread_copies> copies;

static void copy(const thread_copies::group &group)
{
    for (const auto &piece : group) memcpy(piece.first, piece.second, 16);
}

void copy_later(void *shared, const void *global)
{
    copies[current].open.push_back({shared, global});
}

void commit_copies()
{
    thread_copies &own = copies[current];
    if (at_work->random() % 2 == 0) {
        copy(own.open);
        own.open.clear();
    }
    own.committed.push_back(std::move(own.open));
    own.open = {};
}

void wait_for_copies(size_t groups)
{
    thread_copies &own = copies[current];
    for (; own.committed.size() > groups; own.committed.pop_front()) copy(own.committed.front());
}

// A seed for each set of blocks; 0: no delays.
static uint64_t next_seed()
{
    static const char *const text = getenv("MLFF_EMULATE_DELAY");
    static uint64_t n = 0;
    return text ? (strtoull(text, NULL, 10) * 1000003 + ++n) * 0x9e3779b97f4a7c15u | 1 : 0;
}

// Lanes of a warp take turns for as long as they complete collectives: their stacks stay in the cache.
static void run_warp(fiber *first, delays *delayed, size_t warp)
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
        if (delayed && delayed->begins(warp)) return;
    }
}

// ---- blocks that run together

extern "C" __attribute__((visibility("hidden"))) char __start_emulate_shared[], __stop_emulate_shared[];

struct block_set {
    int first; // block
    std::vector<fiber> fibers;
    std::vector<char *> stacks, shared;
    std::vector<barrier_state> barriers, of_clusters;
    std::vector<warp_state> warps;
    unsigned released;             // 0: threads are held in wait_for_previous
    int held;                      // threads that were
    std::vector<bool> triggered;   // blocks that let the next kernel start before
    std::vector<char> suspended;   // contents of variables in shared memory

    block_set(const launch_shape &launched, int first_block, bool holds);
    ~block_set();
    bool all_done() const
    {
        return std::all_of(fibers.begin(), fibers.end(), [](const fiber &f) { return f.done; });
    }
    // Grows with everything that is done but a test of a mbarrier.
    uint64_t progress() const
    {
        uint64_t sum = (uint64_t)held;
        for (const fiber &f : fibers) sum += f.done;
        for (const warp_state &w : warps) sum += w.generation;
        for (const barrier_state &b : barriers) sum += b.generation;
        for (const barrier_state &b : of_clusters) sum += b.generation;
        return sum;
    }
};
static block_set *running;
static std::vector<char *> &spare_stacks = *new std::vector<char *>; // for later launches, never freed

block_set::block_set(const launch_shape &launched, int first_block, bool holds)
    : first(first_block), fibers((size_t)launched.together * launched.threads), barriers((size_t)launched.together * 16),
      of_clusters((size_t)launched.together / launched.cluster), released(!holds), held(0),
      triggered((size_t)launched.together, false)
{
    const int threads = launched.threads, cluster = launched.cluster, warps_of_block = (threads + 31) / 32;
    warps.resize((size_t)launched.together * warps_of_block);
    const size_t bytes = (launched.shared_bytes + 511) / 256 * 256;
    for (int r = 0; r < launched.together; r++) {
        shared.push_back((char *)aligned_alloc(256, bytes));
        memset(shared.back(), 0xff, bytes);
    }
    for (size_t n = 0; n < fibers.size(); n++) {
        if (spare_stacks.empty()) spare_stacks.push_back((char *)aligned_alloc(64, STACK_BYTES));
        char *const stack = spare_stacks.back();
        spare_stacks.pop_back();
        stacks.push_back(stack);
        const int r = (int)n / threads, t = (int)n % threads;
        void **top = (void **)(stack + STACK_BYTES - 64);
        *--top = nullptr; // the return address that emulate_enter never uses; the stack is aligned as after a call
        fibers[n] = fiber{{top, nullptr, (void *)emulate_enter},
                          t,
                          first + r,
                          r / cluster * cluster,
                          false,
                          &fibers[(size_t)r * threads] + std::min(t / 32 * 32 + 32, threads),
                          shared[r],
                          &warps[(size_t)r * warps_of_block + t / 32],
                          &barriers[(size_t)r * 16],
                          &of_clusters[r / cluster],
                          threads,
                          threads * cluster,
                          nullptr,
                          0};
    }
}

block_set::~block_set()
{
    steps += (int64_t)progress();
    for (char *s : shared) free(s);
    spare_stacks.insert(spare_stacks.end(), stacks.rbegin(), stacks.rend());
}

// To the end, or until no thread can go on before the previous kernel is complete.
static void run_set(const launch_shape &launched, block_set &set)
{
    enum { PATIENCE = 4 }; // rounds in which nothing but tests of mbarriers was done
    gridDim.x = launched.blocks;
    blockDim.x = launched.threads;
    body_of_all = &launched.body;
    fibers = &set.fibers;
    running = &set;
    const size_t shared_bytes = (size_t)(__stop_emulate_shared - __start_emulate_shared);
    if (!set.suspended.empty()) memcpy(__start_emulate_shared, set.suspended.data(), shared_bytes);
    const uint64_t seed = next_seed();
    delays delayed(seed, seed ? set.warps.size() : 0, (launched.threads + 31) / 32);
    delays_work = seed != 0;
    at_work = &delayed;
    uint64_t before = set.progress();
    bool left = true, waits = false; // waits: a delayed warp would go on
    for (int idle = 0; left && idle < PATIENCE; delayed.round++) {
        left = false;
        delayed.work_off(false);
        waits = !delayed.pending.empty();
        for (fiber *f = set.fibers.data(), *end = f + set.fibers.size(); f < end; f = f->warp_end) {
            const size_t warp = (size_t)(f->warp - set.warps.data());
            if (seed && delayed.is_delayed(warp))
                waits = true;
            else
                run_warp(f, seed ? &delayed : NULL, warp);
            for (fiber *lane = f; lane < f->warp_end && !left; lane++) left = !lane->done;
        }
        if (set.released) continue;
        const uint64_t now = set.progress();
        idle = now == before && !waits ? idle + 1 : 0;
        before = now;
    }
    delayed.work_off(true);
    for (const fiber &f : set.fibers)
        if (f.done) copies.erase(&f);
    if (!set.released) set.suspended.assign(__start_emulate_shared, __stop_emulate_shared);
}

void hold()
{
    if (running->released) return;
    running->held++;
    wait_until_changed(running->released, 0);
}

void trigger()
{
    if (!running->released) running->triggered[self().block - running->first] = true;
}

// ---- a launch

grid::grid(const launch_shape &launched) : shape(launched), begun((size_t)(launched.blocks / launched.together), nullptr)
{
}

grid::~grid()
{
    for (block_set *set : begun) delete set;
}

// All blocks if they are few, else the first, a middle and the last ones.
void grid::begin()
{
    enum { FEW_THREADS = 2048 };
    const size_t n = begun.size();
    for (size_t k = 0; k < n; k++) {
        if ((int64_t)shape.blocks * shape.threads > FEW_THREADS && k > 0 && k != n / 2 && k + 1 < n) continue;
        begun[k] = new block_set(shape, (int)k * shape.together, true);
        run_set(shape, *begun[k]);
    }
}

bool grid::starts_next()
{
    // That some blocks ended says nothing of those that have not begun.
    const bool all_begun = std::all_of(begun.begin(), begun.end(), [](const block_set *set) { return set; });
    for (const block_set *set : begun)
        for (size_t r = 0; set && r < set->triggered.size(); r++) {
            const fiber *const of_block = &set->fibers[r * (size_t)shape.threads];
            const bool ended = std::all_of(of_block, of_block + shape.threads, [](const fiber &f) { return f.done; });
            if (!set->triggered[r] && !(all_begun && ended)) return false;
        }
    return true;
}

bool grid::never_waits()
{
    return std::all_of(begun.begin(), begun.end(), [](const block_set *set) { return set && set->held == 0 && set->all_done(); });
}

void grid::finish()
{
    for (size_t k = 0; k < begun.size(); k++) {
        if (!begun[k]) begun[k] = new block_set(shape, (int)k * shape.together, false);
        begun[k]->released = 1;
        run_set(shape, *begun[k]);
        delete begun[k];
        begun[k] = nullptr;
    }
}
} // namespace emulate
