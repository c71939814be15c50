// SPDX-License-Identifier: MIT
// emulate_runtime.cc: a CUDA runtime without a GPU, for the whole plugin on the CPU.
//
// Device memory is counted host memory. A stream is a queue whose work is done when somebody waits for it, so that a wait that is missing
// shows. A kernel that may start before the previous one is complete (programmatic launch) runs up to its own wait first, so that what it
// reads too early is old. The default stream is a stream, too: a cudaMemset, a cudaMemcpy inside the device or from memory that is not
// page-locked may return before its bytes have arrived, and other streams do not wait for it. Kernels of the default stream run at once. A
// capture is a list of that work with its parameters, in the order of the calls. Calls that CUDA refuses are refused here: a range outside
// of every block, a fork that is not joined, an allocation during a capture, more shared memory than a kernel was granted.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulate/cuda_runtime.h"
#include "emulate/emulate.h"
#include "emulate/emulate_cuda.h"

// Of a capture: the work on `stream` among its first `count` pieces.
struct work_before {
    cudaStream_t stream;
    size_t count;
};
// What a stream does: a kernel, or anything else.
struct work {
    std::function<void()> run;
    std::shared_ptr<const emulate::launch_shape> kernel;
    bool overlaps = false;      // a programmatic launch: the kernel may start before the one in front of it is complete
    cudaStream_t stream = NULL;     // of a capture
    std::vector<work_before> waits; // of a capture: what precedes it on other streams
    std::shared_ptr<emulate::grid> begun;
    bool complete = false;

    template <typename Function, typename = std::enable_if_t<std::is_invocable_v<Function>>>
    work(Function does) : run(std::move(does))
    {
    }
    explicit work(std::shared_ptr<const emulate::launch_shape> launched, bool overlaps_)
        : kernel(std::move(launched)), overlaps(overlaps_)
    {
    }
};

struct CUgraph_st {
    std::vector<work> nodes;
    cudaStream_t origin;
};
struct CUgraphExec_st {
    std::shared_ptr<const CUgraph_st> graph;
};
struct capture_state {
    std::vector<work> nodes;
    cudaStream_t origin;
    bool broken;
};
struct CUstream_st {
    std::deque<work> queue;
    int64_t asked, done;
    std::shared_ptr<capture_state> capture; // being captured
    int64_t captured, joined;               // of a forked stream: work taken, and how much of it the origin waits for
    std::vector<work_before> waits;         // of its next work
};
struct CUevent_st {
    bool timing;
    cudaStream_t stream; // of the last record; NULL: done
    int64_t sequence;
    uint64_t time;
    std::shared_ptr<capture_state> capture;
    size_t captured; // work of all its streams until then
    std::map<cudaStream_t, int64_t> sequences; // of cuCtxRecordEvent: all streams
};

namespace
{
struct block {
    size_t bytes;
    bool on_device;
    int file; // of the pages, if they are shared; -1: they are not
};
struct planned_failure {
    std::string function;
    int64_t left;
    cudaError_t error;
    bool came;
};

enum { PAGE = 4096 }; // of memory of the device, which can be shared
struct shared_block { // a cudaIpcMemHandle_t
    int process, file;
    size_t bytes;
};

std::recursive_mutex lock;
std::map<void *, size_t> opened; // memory of other processes
// Not destroyed at the end: what a lost GPU held is the driver's to take back, and no leak.
std::map<uintptr_t, block> &blocks = *new std::map<uintptr_t, block>;
CUstream_st default_stream;
std::set<cudaStream_t> streams = {&default_stream};
std::set<cudaEvent_t> events;
std::map<const void *, int> shared_limits;
std::set<const void *> nonportable; // kernels that may have clusters of more than 8 blocks
emulate_counts counts;
planned_failure failure;
cudaError_t lost_by;
bool hung; // a kernel never ends
thread_local cudaError_t last_error;
thread_local int current_device;
thread_local std::shared_ptr<capture_state> capturing; // one at a time is enough for us
enum { MULTIPROCESSORS = 32, LAUNCH_NS = 1000, UNASKED_SHARED = 48 * 1024 };

int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}
int n_devices()
{
    static const int n = (int)setting("MLFF_EMULATE_DEVICES", 1);
    return n;
}
int driver()
{
    static const int version = (int)setting("MLFF_EMULATE_DRIVER", CUDART_VERSION);
    return version;
}
int64_t memory_bytes()
{
    static const int64_t bytes = setting("MLFF_EMULATE_MEMORY", (int64_t)1 << 30);
    return bytes;
}
int capability() // 10 · major + minor
{
    const char *text = getenv("MLFF_EMULATE_CAPABILITY");
    static const int c = text && *text ? (int)(10 * strtod(text, NULL) + 0.5) : 90;
    return c;
}
int shared_bytes()
{
    const int c = capability();
    return 1024 * (c >= 120 ? 99 : c >= 90 ? 227 : c == 80 ? 163 : c > 80 ? 99 : c >= 75 ? 64 : 96);
}

bool loses_device(int error)
{
    return error == cudaErrorIllegalAddress || error == cudaErrorHardwareStackError || error == cudaErrorLaunchFailure ||
           error == cudaErrorECCUncorrectable;
}
cudaError_t answer(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}
void plan_failure(const char *function, int64_t nth, int error)
{
    failure = {function ? function : "", nth, (cudaError_t)error, false};
}
// "[function:]nth[:error]"
void read_failure()
{
    const char *text = getenv("MLFF_EMULATE_FAIL");
    if (!text || !*text) return;
    const char *number = text, *colon = strchr(text, ':');
    std::string function;
    if (*text < '0' || *text > '9') {
        function.assign(text, colon ? (size_t)(colon - text) : strlen(text));
        number = colon ? colon + 1 : "1";
    }
    colon = strchr(number, ':');
    plan_failure(function.c_str(), strtoll(number, NULL, 10), colon ? atoi(colon + 1) : cudaErrorLaunchFailure);
}
// Calls that wait for a kernel that never ends.
void check_waits(const char *function)
{
    static const char *const waiting[] = {"cudaFree", "cudaFreeHost", "cudaDeviceSynchronize", "cudaMemcpy",
                                          "cudaGraphExecDestroy"};
    for (const char *name : waiting)
        if (hung && strcmp(function, name) == 0) {
            fprintf(stderr, "emulated GPU: %s waits for ever, for a kernel that does not end\n", function);
            abort();
        }
}
// Every call of the runtime starts with this.
cudaError_t enter(const char *function)
{
    static bool read = (read_failure(), true);
    (void)read;
    counts.calls++;
    if (lost_by != cudaSuccess) return answer(lost_by);
    check_waits(function);
    if (failure.left > 0 && (failure.function.empty() || failure.function == function) && --failure.left == 0) {
        failure.came = true;
        if (loses_device(failure.error)) lost_by = failure.error;
        hung |= failure.error == cudaErrorNotReady;
        return answer(failure.error);
    }
    if (driver() < CUDART_VERSION / 1000 * 1000) return answer(cudaErrorInsufficientDriver);
    return n_devices() > 0 ? cudaSuccess : answer(cudaErrorNoDevice);
}
#define ENTER                                                                                                                    \
    std::lock_guard<std::recursive_mutex> guard(lock);                                                                           \
    cudaError_t entered = enter(__func__);                                                                                       \
    if (entered != cudaSuccess) return entered
// What an ongoing capture forbids.
#define ENTER_UNCAPTURED                                                                                                         \
    ENTER;                                                                                                                       \
    if (capturing) {                                                                                                             \
        capturing->broken = true;                                                                                                \
        return answer(cudaErrorStreamCaptureUnsupported);                                                                        \
    }

// The block that holds all of [memory, memory + bytes), or NULL.
const block *block_of(const void *memory, size_t bytes)
{
    uintptr_t at = (uintptr_t)memory;
    auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) return NULL;
    auto found = std::prev(after);
    return at + bytes <= found->first + found->second.bytes ? &found->second : NULL;
}
bool on_device(const void *memory, size_t bytes)
{
    const block *b = block_of(memory, bytes);
    return b && b->on_device;
}

// ---- order of work: a kernel of a programmatic launch begins before the previous kernel stores anything, and if that one lets it start
// before it waits itself, before the kernel before that. Work of a graph's other streams is done when something waits for it.

// The next work of the same stream, if it may overlap with work k; -1: none.
template <class Queue> int64_t follower(const Queue &queue, int64_t k)
{
    int64_t j = k + 1;
    while (j < (int64_t)queue.size() && queue[j].stream != queue[k].stream) j++;
    return j < (int64_t)queue.size() && queue[k].kernel && queue[j].overlaps ? j : -1;
}

template <class Queue> void perform(Queue &queue, int64_t k);

template <class Queue> void begin_followers(Queue &queue, int64_t k)
{
    for (int64_t j = follower(queue, k); j >= 0 && !queue[j].begun && !queue[j].complete; j = follower(queue, j)) {
        queue[j].begun = std::make_shared<emulate::grid>(*queue[j].kernel);
        queue[j].begun->begin();
        counts.early++;
        if (!queue[j].begun->starts_next()) return;
        if (!queue[j].begun->never_waits()) continue;
        // It is complete, although the kernel before it is not. The next kernel waits for it alone.
        const int64_t next = follower(queue, j);
        perform(queue, j);
        if (next >= 0 && queue[next].waits.empty()) perform(queue, next);
        return;
    }
}

// MLFF_EMULATE_EARLY=0, 1: only every other kernel lets kernels begin early. They begin before the previous kernel does anything; else that
// one has begun early too, and what it stores before it waits is seen.
bool begins_early()
{
    static const int64_t parity = setting("MLFF_EMULATE_EARLY", -1);
    static int64_t n_kernels;
    return parity < 0 || n_kernels++ % 2 == parity;
}

template <class Queue> void perform(Queue &queue, int64_t k)
{
    work &w = queue[k];
    if (w.complete) return;
    w.complete = true;
    for (const work_before &before : w.waits)
        for (int64_t j = 0; j < (int64_t)before.count; j++)
            if (queue[j].stream == before.stream) perform(queue, j);
    if (!w.kernel) return w.run();
    if (begins_early()) begin_followers(queue, k);
    emulate::clock_ns += LAUNCH_NS;
    if (!w.begun) w.begun = std::make_shared<emulate::grid>(*w.kernel);
    w.begun->finish();
    w.begun.reset();
    emulate::clock_ns += LAUNCH_NS;
}

void drain(cudaStream_t stream, int64_t until)
{
    while (stream->done < until && !stream->queue.empty()) {
        if (stream->queue.front().kernel) {
            perform(stream->queue, 0);
            stream->queue.pop_front();
            stream->done++;
            continue;
        }
        work next = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->done++;
        next.run();
    }
}
void drain_all()
{
    for (cudaStream_t s : streams) drain(s, s->asked);
}
cudaStream_t real(cudaStream_t stream)
{
    return stream ? stream : &default_stream;
}
cudaError_t enqueue(cudaStream_t stream, const work &w)
{
    stream = real(stream);
    if (streams.count(stream) == 0) {
        return answer(cudaErrorInvalidResourceHandle);
    } else if (stream->capture) {
        stream->capture->nodes.push_back(w);
        stream->capture->nodes.back().stream = stream;
        stream->capture->nodes.back().waits.swap(stream->waits);
        stream->captured++;
    } else {
        stream->queue.push_back(w);
        stream->asked++;
    }
    return cudaSuccess;
}
bool legal_index(int index)
{
    return index >= 0 && index < n_devices();
}
size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}
cudaError_t allocate(void **memory, size_t bytes, bool device)
{
    if (device && counts.block_bytes + (int64_t)bytes > memory_bytes()) return answer(cudaErrorMemoryAllocation);
    const size_t unit = device ? PAGE : 256;
    void *p = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
    if (!p) return answer(cudaErrorMemoryAllocation);
    memset(p, 0xff, bytes);
    blocks[(uintptr_t)p] = {bytes, device, -1};
    counts.allocations++;
    (device ? counts.blocks : counts.host_blocks)++;
    if (device) counts.block_bytes += (int64_t)bytes;
    *memory = p;
    return cudaSuccess;
}
cudaError_t release(void *memory, bool device)
{
    if (!memory) return cudaSuccess;
    auto found = blocks.find((uintptr_t)memory);
    if (found == blocks.end() || found->second.on_device != device) return answer(cudaErrorInvalidValue);
    drain_all(); // what still uses it ends first
    (device ? counts.blocks : counts.host_blocks)--;
    if (device) counts.block_bytes -= (int64_t)found->second.bytes;
    const int file = found->second.file;
    const size_t bytes = whole_pages(found->second.bytes);
    blocks.erase(found);
    if (file >= 0) { // a forked child would write into the same heap
        close(file);
        if (mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory) abort();
    }
    free(memory);
    return cudaSuccess;
}
bool legal_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return (!to_device || on_device(to, bytes)) && (!from_device || on_device(from, bytes));
}
int cluster_of(const cudaLaunchConfig_t &config)
{
    for (unsigned k = 0; k < config.numAttrs; k++)
        if (config.attrs[k].id == cudaLaunchAttributeClusterDimension) return (int)config.attrs[k].val.clusterDim.x;
    return 1;
}
} // namespace

// ---- kernels ------------------------------------------------------------------------------------------------------------

namespace emulate
{
uint64_t clock_ns = 1000000000;
int64_t steps = 0;

cudaError_t launch(const cudaLaunchConfig_t &config, const void *kernel, const std::function<void()> &body)
{
    ENTER;
    const int n = (int)config.gridDim.x, threads = (int)config.blockDim.x, cluster = cluster_of(config);
    const size_t bytes = config.dynamicSmemBytes;
    bool together = false, overlaps = false;
    for (unsigned k = 0; k < config.numAttrs; k++) {
        together = together || (config.attrs[k].id == cudaLaunchAttributeCooperative && config.attrs[k].val.cooperative);
        overlaps = overlaps || (config.attrs[k].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                                config.attrs[k].val.programmaticStreamSerializationAllowed);
    }
    auto granted = shared_limits.find(kernel);
    if (n < 1 || threads < 1 || threads > 1024 || n % cluster != 0 || config.gridDim.y != 1 || config.blockDim.y != 1)
        return answer(cudaErrorInvalidConfiguration);
    if (cluster > (nonportable.count(kernel) ? 16 : 8) || (capability() < 90 && config.numAttrs > 0))
        return answer(cudaErrorNotSupported);
    if (bytes > (size_t)(granted == shared_limits.end() ? UNASKED_SHARED : granted->second)) return answer(cudaErrorInvalidValue);
    if (together && n > MULTIPROCESSORS) return answer(cudaErrorCooperativeLaunchTooLarge);
    counts.launches++;
    const launch_shape shape = {n, threads, bytes, cluster, together ? n : cluster, body};
    cudaError_t error = enqueue(config.stream, work(std::make_shared<launch_shape>(shape), overlaps));
    if (!config.stream) drain(&default_stream, default_stream.asked);
    return error;
}

cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int bytes)
{
    ENTER;
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        if (capability() < 90) return answer(cudaErrorInvalidValue);
        nonportable.insert(kernel);
        return cudaSuccess;
    }
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (bytes > shared_bytes()) return answer(cudaErrorInvalidValue);
    shared_limits[kernel] = bytes;
    return cudaSuccess;
}

cudaError_t clusters_at_once(int *n, const void *kernel, const cudaLaunchConfig_t &config)
{
    ENTER;
    auto granted = shared_limits.find(kernel);
    if (capability() < 90) return answer(cudaErrorNotSupported);
    if (granted == shared_limits.end() || config.dynamicSmemBytes > (size_t)granted->second) return answer(cudaErrorInvalidValue);
    *n = MULTIPROCESSORS / cluster_of(config);
    return cudaSuccess;
}
} // namespace emulate

// ---- errors and devices ---------------------------------------------------------------------------------------------------

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static thread_local char text[64];
    snprintf(text, sizeof text, "emulated error %d", (int)error);
    return text;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    ENTER;
    *n = n_devices();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    ENTER;
    if (!legal_index(index)) return answer(cudaErrorInvalidDevice);
    current_device = index;
    return cudaSuccess;
}

// All memory is one here: only what the calls answer is emulated. MLFF_EMULATE_PEERS=0: no GPU reads another's memory.
cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to)
{
    ENTER;
    *can = from != to && setting("MLFF_EMULATE_PEERS", 1) != 0;
    return legal_index(from) && legal_index(to) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int to, unsigned flags)
{
    ENTER;
    static std::set<std::pair<int, int>> enabled;
    if (!legal_index(to) || to == current_device) return answer(cudaErrorInvalidDevice);
    if (flags != 0) return answer(cudaErrorInvalidValue);
    return enabled.insert({current_device, to}).second ? cudaSuccess : answer(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index)
{
    ENTER;
    if (!legal_index(index)) return answer(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated GPU %d", index);
    p->totalGlobalMem = (size_t)memory_bytes();
    p->sharedMemPerBlockOptin = (size_t)shared_bytes();
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->l2CacheSize = 1 << 20;
    p->pciBusID = index + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int index)
{
    ENTER;
    *value = 1000000; // kHz: the plugin asks for clocks only
    return legal_index(index) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER_UNCAPTURED;
    drain_all();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int index)
{
    ENTER;
    *pool = NULL;
    return legal_index(index) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t)
{
    ENTER;
    return cudaSuccess;
}

// ---- memory -----------------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ENTER_UNCAPTURED;
    return allocate(memory, bytes, true);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    ENTER_UNCAPTURED;
    return allocate(memory, bytes, false);
}

// What gives back gives back, whatever it answers.
cudaError_t cudaFree(void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__), freed = release(memory, true);
    return error != cudaSuccess ? error : freed;
}

cudaError_t cudaFreeHost(void *memory)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__), freed = release(memory, false);
    return error != cudaSuccess ? error : freed;
}

// The block's pages become those of a file that other processes map.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    ENTER_UNCAPTURED;
    auto found = blocks.find((uintptr_t)memory);
    if (found == blocks.end() || !found->second.on_device) return answer(cudaErrorInvalidValue);
    drain_all();
    const size_t bytes = whole_pages(found->second.bytes);
    int &file = found->second.file;
    if (file < 0) {
        const int made = memfd_create("emulated", 0);
        if (made < 0) return answer(cudaErrorMemoryAllocation);
        if (ftruncate(made, (off_t)bytes) != 0 || write(made, memory, bytes) != (ssize_t)bytes ||
            mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, made, 0) != memory) {
            close(made);
            return answer(cudaErrorMemoryAllocation);
        }
        file = made;
    }
    const shared_block shared = {getpid(), file, bytes};
    memcpy(handle, &shared, sizeof shared);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned)
{
    ENTER_UNCAPTURED;
    shared_block shared;
    memcpy(&shared, &handle, sizeof shared);
    if (shared.process == getpid()) return answer(cudaErrorInvalidValue);
    const std::string name = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
    const int file = open(name.c_str(), O_RDWR);
    *memory = file < 0 ? MAP_FAILED : mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (*memory == MAP_FAILED) return answer(cudaErrorInvalidValue);
    opened[*memory] = shared.bytes;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    ENTER_UNCAPTURED;
    auto found = opened.find(memory);
    if (found == opened.end()) return answer(cudaErrorInvalidValue);
    drain_all();
    munmap(memory, found->second);
    opened.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER;
    *total_bytes = (size_t)memory_bytes();
    *free_bytes = (size_t)(memory_bytes() - counts.block_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    ENTER_UNCAPTURED;
    if (!on_device(memory, bytes)) return answer(cudaErrorInvalidValue);
    return enqueue(NULL, [=]() { memset(memory, value, bytes); });
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    ENTER;
    if (!on_device(memory, bytes)) return answer(cudaErrorInvalidValue);
    return enqueue(stream, [=]() { memset(memory, value, bytes); });
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!legal_copy(to, from, bytes, kind)) return answer(cudaErrorInvalidValue);
    counts.copies++;
    const bool captured = real(stream)->capture != NULL;
    if (!captured && !block_of(from, bytes)) { // pageable: taken now
        std::string taken((const char *)from, bytes);
        return enqueue(stream, [=]() { memcpy(to, taken.data(), taken.size()); });
    }
    cudaError_t error = enqueue(stream, [=]() {
        emulate::clock_ns += LAUNCH_NS;
        memmove(to, from, bytes);
    });
    // To pageable memory: complete on return.
    if (error == cudaSuccess && !captured && !block_of(to, bytes)) drain(real(stream), real(stream)->asked);
    return error;
}

// Returns early in the cases that the first comment names.
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    ENTER_UNCAPTURED;
    cudaError_t error = copy(to, from, bytes, kind, NULL);
    const block *target = block_of(to, bytes), *source = block_of(from, bytes);
    if ((target && !target->on_device) || (source && !source->on_device)) drain(&default_stream, default_stream.asked);
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER;
    return copy(to, from, bytes, kind, stream);
}

// ---- streams and events -------------------------------------------------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    ENTER;
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    ENTER;
    *stream = new CUstream_st();
    streams.insert(*stream);
    counts.streams++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__);
    if (!stream || streams.count(stream) == 0) return answer(cudaErrorInvalidResourceHandle);
    drain(stream, stream->asked);
    streams.erase(stream);
    for (cudaEvent_t e : events)
        if (e->stream == stream) e->stream = NULL;
    delete stream;
    counts.streams--;
    return error;
}

static cudaError_t wait_for(cudaStream_t stream)
{
    stream = real(stream);
    if (streams.count(stream) == 0) return answer(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        stream->capture->broken = true;
        return answer(cudaErrorStreamCaptureUnsupported);
    }
    drain(stream, stream->asked);
    return cudaSuccess;
}

// Asking is waiting here: the work is done now. Once a planned failure has answered cudaErrorNotReady, a kernel never ends.
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER;
    return hung ? cudaErrorNotReady : wait_for(stream);
}

static cudaError_t create_event(cudaEvent_t *event, bool timing)
{
    *event = new CUevent_st();
    (*event)->timing = timing;
    events.insert(*event);
    counts.events++;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    ENTER;
    return create_event(event, true);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER;
    return create_event(event, !(flags & cudaEventDisableTiming));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__);
    if (events.erase(event) == 0) return answer(cudaErrorInvalidResourceHandle);
    delete event;
    counts.events--;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER;
    if (events.count(event) == 0) return answer(cudaErrorInvalidResourceHandle);
    stream = real(stream);
    event->capture = stream->capture;
    event->stream = stream;
    event->sequences.clear();
    if (event->capture) {
        event->sequence = stream->captured;
        event->captured = stream->capture->nodes.size();
        return cudaSuccess;
    }
    cudaError_t error = enqueue(stream, [=]() {
        if (events.count(event)) event->time = emulate::clock_ns;
    });
    event->sequence = stream->asked;
    return error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER;
    stream = real(stream);
    if (events.count(event) == 0 || streams.count(stream) == 0) return answer(cudaErrorInvalidResourceHandle);
    if (event->capture) stream->waits.push_back({event->stream, event->captured});
    if (event->capture && stream == event->capture->origin) {
        event->stream->joined = event->sequence;
        return cudaSuccess;
    }
    if (event->capture) { // the stream joins the capture
        stream->capture = event->capture;
        stream->captured = stream->joined = 0;
        return cudaSuccess;
    }
    cudaStream_t other = event->stream;
    int64_t sequence = event->sequence;
    if (!other) return cudaSuccess;
    return enqueue(stream, [=]() {
        if (streams.count(other)) drain(other, sequence);
    });
}

static int cuCtxGetCurrent(void **context)
{
    *context = &default_stream; // only handed back
    return 0;
}

static int cuCtxRecordEvent(void *, cudaEvent_t event)
{
    ENTER_UNCAPTURED;
    if (events.count(event) == 0) return answer(cudaErrorInvalidResourceHandle);
    event->stream = NULL;
    for (cudaStream_t s : streams) event->sequences[s] = s->asked;
    return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    ENTER;
    *function = (int)version > driver()                   ? NULL
                : strcmp(symbol, "cuCtxGetCurrent") == 0  ? (void *)cuCtxGetCurrent
                : strcmp(symbol, "cuCtxRecordEvent") == 0 ? (void *)cuCtxRecordEvent
                                                          : NULL;
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

// As cudaStreamQuery.
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER;
    if (events.count(event) == 0) return answer(cudaErrorInvalidResourceHandle);
    if (hung) return cudaErrorNotReady;
    if (event->stream) drain(event->stream, event->sequence);
    for (const auto &[stream, sequence] : event->sequences)
        if (streams.count(stream)) drain(stream, sequence);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    ENTER;
    for (cudaEvent_t e : {start, end}) {
        if (events.count(e) == 0 || !e->timing || e->time == 0) return answer(cudaErrorInvalidResourceHandle);
        if (e->stream && e->stream->done < e->sequence) return answer(cudaErrorNotReady);
    }
    *milliseconds = (float)(1e-6 * ((double)end->time - (double)start->time));
    return cudaSuccess;
}

// ---- graphs -----------------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER;
    if (streams.count(real(stream)) == 0) return answer(cudaErrorInvalidResourceHandle);
    *status = real(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    ENTER;
    if (streams.count(stream) == 0 || capturing) return answer(cudaErrorStreamCaptureUnsupported);
    capturing = std::make_shared<capture_state>();
    capturing->origin = stream;
    stream->capture = capturing;
    counts.captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__); // a capture ends, whatever is answered
    std::shared_ptr<capture_state> ended = streams.count(stream) ? stream->capture : NULL;
    *graph = NULL;
    if (!ended || ended->origin != stream) return answer(cudaErrorInvalidValue);
    bool joined = true;
    for (cudaStream_t s : streams)
        if (s->capture == ended) {
            joined = joined && (s == stream || s->joined == s->captured);
            s->capture = NULL;
            s->waits.clear();
        }
    capturing = NULL;
    if (error != cudaSuccess) return error;
    if (ended->broken) return answer(cudaErrorStreamCaptureInvalidated);
    if (!joined) return answer(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{std::move(ended->nodes), stream};
    counts.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    ENTER;
    *executable = new CUgraphExec_st{std::make_shared<CUgraph_st>(*graph)};
    counts.executables++;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    ENTER;
    std::shared_ptr<const CUgraph_st> graph = executable->graph;
    counts.graph_launches++;
    return enqueue(stream, [=]() {
        std::vector<work> nodes = graph->nodes;
        for (int64_t k = 0; k < (int64_t)nodes.size(); k++)
            if (nodes[k].stream == graph->origin) perform(nodes, k);
        for (int64_t k = 0; k < (int64_t)nodes.size(); k++) perform(nodes, k);
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__);
    delete graph;
    counts.graphs--;
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    cudaError_t error = enter(__func__);
    delete executable;
    counts.executables--;
    return error;
}

// ---- for tests ----------------------------------------------------------------------------------------------------------------------

#define FOR_TESTS extern "C" __attribute__((visibility("default")))

FOR_TESTS void emulate_counts_get(emulate_counts *counts_out)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *counts_out = counts;
    counts_out->steps = emulate::steps;
}

FOR_TESTS void emulate_fail(const char *function, int64_t nth, int error)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    plan_failure(function, nth, error);
}

FOR_TESTS int emulate_mend(void)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    bool came = failure.came;
    failure = planned_failure();
    lost_by = cudaSuccess;
    hung = false;
    return came;
}
