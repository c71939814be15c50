// SPDX-License-Identifier: MIT
// cupti.c: a window of activity records. CUPTI's records differ from release to release, but each release appended: what is
// read here has stood at the same place from CUDA 9 (kernels) and CUDA 11 (the others) to CUDA 13, and these first parts
// are written down below.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "mlff_profile.h"

// ---- what we know of CUPTI -----------------------------------------------------------------------

enum { KIND_COPY = 1, KIND_FILL = 2, KIND_KERNEL = 10, KIND_SYNCHRONIZATION = 38 }; // CUpti_ActivityKind
enum { DEVICE_WAITS_FOR_EVENT = 2 };                                                // a synchronization that blocks no host
enum { NOT_COMPATIBLE = 14, NO_PRIVILEGES = 35, OTHER_SUBSCRIBER = 39 };            // CUptiResult
enum { FLUSH_FORCED = 1 };
enum { OLDEST_VERSION = 12, FIRST_UNKNOWN_VERSION = 140000 }; // CUDA 11.0; CUDA 14
enum { DETACHES_WELL = 24 };                                  // CUDA 12.6: before, graphs did not survive it

typedef struct kernel_head { // CUpti_ActivityKernel4 and later
    uint32_t kind, unused_0[3];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    uint32_t unused_1[10], correlation;
    int64_t grid;
    const char *name;
    uint64_t unused_2[4], graph_node; // the last from CUpti_ActivityKernel5 on
} kernel_head;
typedef struct copy_head { // CUpti_ActivityMemcpy4, CUpti_ActivityMemset3 and later
    uint32_t kind;
    uint8_t direction, unused[3]; // of a copy
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
} copy_head;
typedef struct wait_head { // CUpti_ActivitySynchronization and later
    uint32_t kind, type;
    uint64_t start, end;
} wait_head;
_Static_assert(offsetof(kernel_head, stream) == 48 && offsetof(kernel_head, correlation) == 92 &&
                   offsetof(kernel_head, name) == 104 && offsetof(kernel_head, graph_node) == 144,
               "CUPTI's kernel record");
_Static_assert(offsetof(copy_head, start) == 16 && offsetof(copy_head, stream) == 40, "CUPTI's copy record");

typedef void requested_function(uint8_t **buffer, size_t *bytes, size_t *max_records);
typedef void completed_function(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);
typedef void callback_function(void *data, int domain, uint32_t id, const void *callback_data);

typedef struct cupti {
    int (*version)(uint32_t *version);
    int (*result_text)(int result, const char **text);
    int (*subscribe)(void **subscriber, callback_function *callback, void *data);
    int (*unsubscribe)(void *subscriber);
    int (*register_callbacks)(requested_function *requested, completed_function *completed);
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*flush)(uint32_t flag);
    int (*next)(uint8_t *buffer, size_t valid_bytes, void **record);
    int (*dropped)(void *context, uint32_t stream, size_t *dropped);
    int (*timestamp)(uint64_t *timestamp);
    int (*finalize)(void); // may be missing
} cupti;

// ---- the library ---------------------------------------------------------------------------------

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cupti library;
static uint32_t library_version;
static char library_problem[512]; // "" if it can be used
static double library_open_ns;

static void *find_library(void)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
    static const char *const folders[] = {"/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/",
                                          "/usr/local/cuda/lib/"};
    enum { NAMES = sizeof names / sizeof *names, FOLDERS = sizeof folders / sizeof *folders };
    const char *wanted = getenv("MLFF_CUPTI");
    void *handle = NULL;
    char path[128];
    if (wanted && *wanted) return dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    // The one that the process has (PyTorch brings its own) comes first: two in a process do not see one another.
    for (int k = 0; k < NAMES && !handle; k++) handle = dlopen(names[k], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    for (int k = 0; k < NAMES && !handle; k++) handle = dlopen(names[k], RTLD_NOW | RTLD_LOCAL);
    for (int k = 0; k < FOLDERS && !handle; k++) {
        snprintf(path, sizeof path, "%slibcupti.so", folders[k]);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

// Without a driver there is nothing to watch, and a CUPTI that PyTorch has brought along crashes when it is asked.
static bool has_driver(void)
{
    const char *wanted = getenv("MLFF_CUPTI");
    static void *driver; // kept open
    if (wanted && *wanted) return true;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver != NULL;
}

static void open_once(void)
{
    int64_t start = mlff_clock_ns();
    if (!has_driver()) {
        snprintf(library_problem, sizeof library_problem, "there is no NVIDIA driver on this machine, and no kernel to watch");
        return;
    }
    void *handle = find_library();
    const struct {
        const char *name;
        void *function;
    } symbols[] = {{"cuptiGetVersion", &library.version},
                   {"cuptiGetResultString", &library.result_text},
                   {"cuptiSubscribe", &library.subscribe},
                   {"cuptiUnsubscribe", &library.unsubscribe},
                   {"cuptiActivityRegisterCallbacks", &library.register_callbacks},
                   {"cuptiActivityEnable", &library.enable},
                   {"cuptiActivityDisable", &library.disable},
                   {"cuptiActivityFlushAll", &library.flush},
                   {"cuptiActivityGetNextRecord", &library.next},
                   {"cuptiActivityGetNumDroppedRecords", &library.dropped},
                   {"cuptiGetTimestamp", &library.timestamp}};
    if (!handle) {
        const char *reason = dlerror();
        snprintf(library_problem, sizeof library_problem,
                 "libcupti.so cannot be opened (%.300s); it comes with the CUDA toolkit and with pip's nvidia-cuda-cupti; set "
                 "MLFF_CUPTI to its path",
                 reason ? reason : "not found");
        return;
    }
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++) {
        void *symbol = dlsym(handle, symbols[k].name);
        memcpy(symbols[k].function, &symbol, sizeof symbol); // POSIX: a function pointer fits
        if (symbol) continue;
        snprintf(library_problem, sizeof library_problem, "the CUPTI that was found has no %s; set MLFF_CUPTI to another",
                 symbols[k].name);
        return;
    }
    void *finalize = dlsym(handle, "cuptiFinalize");
    memcpy(&library.finalize, &finalize, sizeof finalize);
    if (library.version(&library_version) != 0) library_version = 0;
    if (library_version < OLDEST_VERSION || library_version >= FIRST_UNKNOWN_VERSION)
        snprintf(library_problem, sizeof library_problem,
                 "CUPTI's version %u is not known here, CUDA 11 to 13 are; set MLFF_CUPTI to another", library_version);
    library_open_ns = (double)(mlff_clock_ns() - start);
}

static mlff_status failed(int result, const char *what)
{
    const char *text = NULL;
    if (result == OTHER_SUBSCRIBER)
        return mlff_fail(
            MLFF_ERR_DEVICE,
            "another profiler holds CUPTI in this process (nsys, ncu, torch.profiler, …); only one can: run without it");
    if (result == NO_PRIVILEGES)
        return mlff_fail(MLFF_ERR_DEVICE, "this user may not trace the GPU: the driver was loaded with "
                                          "NVreg_RestrictProfilingToAdminUsers=1; ask the administrator");
    if (library.result_text(result, &text) != 0 || !text) text = "unknown error";
    return mlff_fail(MLFF_ERR_DEVICE, "%s: CUPTI says %s%s", what, text,
                     result == NOT_COMPATIBLE ? "; another tool or a virtual machine holds the GPU" : "");
}

// ---- the window ----------------------------------------------------------------------------------

enum { BUFFER_BYTES = 4 << 20, BUFFER_ALIGNMENT = 64, NAME_SLOTS = 2 * ACTIVITY_NAMES_MAX };

// CUPTI's buffer functions have no argument of ours, and may be called from a thread of CUPTI's.
static struct {
    pthread_mutex_t lock;
    activity *window; // NULL: none is open
    void *subscriber;
    int kinds[4], n_kinds; // that were switched on
    int64_t begin_ns, begin_offset_ns;
    const char **slots; // [NAME_SLOTS] of CUPTI's names, by address
    int *slot_names;
    char *(*demangle)(const char *name, char *buffer, size_t *bytes, int *status);
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

// "void message_kernel<128, 0>(step, int)" as "message_kernel<128, 0>".
static char *readable(const char *mangled)
{
    int status = -1;
    char *demangled = own.demangle ? own.demangle(mangled, NULL, NULL, &status) : NULL;
    const char *from = status == 0 && demangled ? demangled : mangled;
    if (strncmp(from, "void ", 5) == 0) from += 5;
    size_t length = strlen(from), end = length;
    int depth = 0;
    while (end > 0 && length > 0 && from[length - 1] == ')') { // the last list of arguments
        end--;
        depth += (from[end] == ')') - (from[end] == '(');
        if (depth == 0) break;
    }
    if (end == 0) end = length;
    if (end > 400) end = 400;
    char *copy = base_alloc(end + 1, 1, "a kernel's name");
    if (copy) memcpy(copy, from, end);
    free(demangled);
    return copy;
}

// Index of a kernel's name; -1 if there are too many. CUPTI keeps one address for a kernel.
static int name_of(activity *window, const char *name)
{
    size_t slot = ((uintptr_t)name >> 3) * 2654435761u % NAME_SLOTS;
    while (own.slots[slot] && own.slots[slot] != name) slot = (slot + 1) % NAME_SLOTS;
    if (own.slots[slot]) return own.slot_names[slot];
    if (window->n_names == ACTIVITY_NAMES_MAX) return -1;
    char *copy = readable(name);
    if (!copy) return -1;
    int index = 0;
    while (index < window->n_names && strcmp(window->names[index], copy) != 0) index++;
    if (index < window->n_names)
        base_free(copy);
    else
        window->names[window->n_names++] = copy;
    own.slots[slot] = name;
    own.slot_names[slot] = index;
    return index;
}

static void keep(activity *window, const void *record)
{
    kernel_head kernel;
    copy_head copy;
    wait_head wait;
    uint32_t kind;
    activity_record made = {.name = -1};
    memcpy(&kind, record, sizeof kind);
    if (kind == KIND_KERNEL) {
        memcpy(&kernel, record, sizeof kernel);
        made.kind = ACTIVITY_KERNEL;
        made.start_ns = (int64_t)kernel.start;
        made.end_ns = (int64_t)kernel.end;
        made.device = kernel.device;
        made.stream = kernel.stream;
        made.in_graph = kernel.graph_node != 0;
        made.name = kernel.name ? name_of(window, kernel.name) : -1;
    } else if (kind == KIND_COPY || kind == KIND_FILL) {
        memcpy(&copy, record, sizeof copy);
        made.kind = kind == KIND_COPY ? ACTIVITY_COPY : ACTIVITY_FILL;
        made.start_ns = (int64_t)copy.start;
        made.end_ns = (int64_t)copy.end;
        made.device = copy.device;
        made.stream = copy.stream;
        if (kind == KIND_COPY) made.name = copy.direction;
    } else if (kind == KIND_SYNCHRONIZATION) {
        memcpy(&wait, record, sizeof wait);
        if (wait.type == DEVICE_WAITS_FOR_EVENT) return;
        made.kind = ACTIVITY_WAIT;
        made.start_ns = (int64_t)wait.start;
        made.end_ns = (int64_t)wait.end;
    } else {
        return;
    }
    if (made.start_ns <= 0 || made.end_ns < made.start_ns) {
        window->n_invalid++;
        return;
    }
    if (window->n_records == ACTIVITY_RECORDS_MAX ||
        base_grow(&window->records, &window->capacity, window->n_records + 1, sizeof made, "GPU activity") != MLFF_OK) {
        window->n_left_out++;
        return;
    }
    window->records[window->n_records++] = made;
}

static void on_requested(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
    *buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES); // of the C library: freed where CUPTI hands it back
    if (*buffer) memset(*buffer, 0, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0;
}

static void on_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes)
{
    (void)bytes;
    void *record = NULL;
    size_t dropped = 0;
    pthread_mutex_lock(&own.lock);
    activity *window = own.window;
    if (window) {
        while (valid_bytes > 0 && library.next(buffer, valid_bytes, &record) == 0) keep(window, record);
        if (library.dropped(context, stream, &dropped) == 0) window->n_dropped += (int64_t)dropped;
    }
    pthread_mutex_unlock(&own.lock);
    free(buffer);
}

static void on_event(void *data, int domain, uint32_t id, const void *callback_data)
{
    (void)data, (void)domain, (void)id, (void)callback_data; // nothing is subscribed to: it holds the place
}

// CUPTI's clock less ours; between two readings of ours that are as near as they come.
static int64_t clock_offset(void)
{
    int64_t best = INT64_MAX, offset = 0;
    for (int i = 0; i < 16; i++) {
        uint64_t there = 0;
        int64_t before = mlff_clock_ns();
        if (library.timestamp(&there) != 0) break;
        int64_t after = mlff_clock_ns();
        if (after - before >= best) continue;
        best = after - before;
        offset = (int64_t)there - before - best / 2;
    }
    return offset;
}

static void find_demangler(void)
{
    static void *handle; // kept open
    handle = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle ? dlsym(handle, "__cxa_demangle") : NULL;
    memcpy(&own.demangle, &symbol, sizeof symbol);
}

// The subscriber of CUPTI may release it. As long as it is attached every launch stays slower, 8 µs of a step of 73 on an H200.
static void detach(void)
{
    const char *wanted = getenv("MLFF_CUPTI_DETACH");
    if (library.finalize && library_version >= DETACHES_WELL && !(wanted && strcmp(wanted, "0") == 0)) (void)library.finalize();
}

static void stop(void)
{
    for (int k = 0; k < own.n_kinds; k++) (void)library.disable(own.kinds[k]);
    own.n_kinds = 0;
    if (own.subscriber) {
        (void)library.unsubscribe(own.subscriber); // the place is free again for other tools
        detach();
    }
    own.subscriber = NULL;
    pthread_mutex_lock(&own.lock);
    own.window = NULL;
    pthread_mutex_unlock(&own.lock);
    base_free(own.slots);
    base_free(own.slot_names);
    own.slots = NULL;
    own.slot_names = NULL;
}

mlff_status activity_begin(activity *window)
{
    mlff_status status = MLFF_OK;
    static const int kinds[] = {KIND_KERNEL, KIND_COPY, KIND_FILL, KIND_SYNCHRONIZATION};
    int result;
    bool first = library_open_ns == 0.0;
    pthread_once(&once, open_once);
    *window = (activity){.version = library_version};
    if (*library_problem) return mlff_fail(MLFF_ERR_DEVICE, "%s", library_problem);
    if (own.window) return mlff_fail(MLFF_ERR_USAGE, "a window on the GPU's activity is open already");
    if (!own.demangle) find_demangler();

    int64_t start = mlff_clock_ns();
    own.slots = base_alloc(NAME_SLOTS, sizeof *own.slots, "kernels' names");
    own.slot_names = base_alloc(NAME_SLOTS, sizeof *own.slot_names, "kernels' names");
    window->names = base_alloc(ACTIVITY_NAMES_MAX, sizeof *window->names, "kernels' names");
    own.window = window;
    if (!own.slots || !own.slot_names || !window->names) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    if ((result = library.subscribe(&own.subscriber, on_event, NULL)) != 0) {
        own.subscriber = NULL;
        MLFF_TRY(failed(result, "tracing the GPU"));
    }
    if ((result = library.register_callbacks(on_requested, on_completed)) != 0) MLFF_TRY(failed(result, "tracing the GPU"));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        result = library.enable(kinds[k]);
        if (result == 0) own.kinds[own.n_kinds++] = kinds[k];
        if (result != 0 && kinds[k] == KIND_KERNEL) MLFF_TRY(failed(result, "tracing kernels"));
    }
    own.begin_ns = mlff_clock_ns();
    own.begin_offset_ns = clock_offset();
    if (first) window->open_ns = library_open_ns + (double)(own.begin_ns - start);
done:
    if (status != MLFF_OK) {
        stop();
        activity_free(window);
    }
    return status;
}

static int by_start(const void *a, const void *b)
{
    const activity_record *x = a, *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

mlff_status activity_end(activity *window)
{
    mlff_status status = MLFF_OK;
    if (own.window != window) return mlff_fail(MLFF_ERR_USAGE, "no window on the GPU's activity is open");
    size_t dropped = 0;
    int64_t end_ns = mlff_clock_ns(), end_offset_ns = clock_offset();
    int result = library.flush(FLUSH_FORCED);
    if (result != 0) status = failed(result, "fetching the GPU's activity");
    if (library.dropped(NULL, 0, &dropped) == 0) window->n_dropped += (int64_t)dropped;
    stop();
    // The two clocks may drift apart during the window.
    double drift = end_ns > own.begin_ns ? (double)(end_offset_ns - own.begin_offset_ns) / (double)(end_ns - own.begin_ns) : 0.0;
    for (size_t i = 0; i < window->n_records; i++) {
        activity_record *r = &window->records[i];
        int64_t length = r->end_ns - r->start_ns;
        r->start_ns -= own.begin_offset_ns;
        r->start_ns -= (int64_t)(drift * (double)(r->start_ns - own.begin_ns));
        r->end_ns = r->start_ns + length;
    }
    if (window->n_records > 1) qsort(window->records, window->n_records, sizeof *window->records, by_start);
    return status;
}

void activity_free(activity *window)
{
    for (int i = 0; window->names && i < window->n_names; i++) base_free(window->names[i]);
    base_free(window->names);
    base_free(window->records);
    *window = (activity){0};
}
