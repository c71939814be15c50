// SPDX-License-Identifier: MIT
// exchange.c: halo exchange between domains of one process.
//
// forward: all publish their arrays; barrier; each copies its ghosts' rows from their owners; barrier.
// reverse: all publish; barrier; each adds the copies of its shared rows, in the order of domains and rows; barrier; each zeroes its ghosts.
// On GPUs the same is enqueued: a kernel reads the other GPU's memory, and streams wait for each other's events; the barriers then only
// ensure that an event is recorded before another thread enqueues the wait for it.
#include "parallel/exchange.h"

#include <string.h>

#include "device/device.h"

enum { MAX_ARRAYS = 4 };

typedef struct domain_exchange {
    exchange *all;
    int index;
    mlff_halo_array arrays[MAX_ARRAYS]; // of the exchange under way
    int64_t total_ns, wait_ns, apart_ns;
    int flag; // of any_hook
    // of GPUs
    void *ready, *taken; // events: own rows are complete; own copies and sums are made
    int32_t *tables;     // device copy of source, source_row, shared, holder_first, holder, holder_row
    size_t table_bytes;
    int32_t *packed; // the same on the host
    size_t packed_capacity;
} domain_exchange;

struct exchange {
    crew *crew;
    const decomposition *decomposition;
    const mlff_device *devices;
    int n;
    const device_plugin *plugin; // NULL: domains on the CPU
    domain_exchange domains[MAX_DOMAINS];
};

void exchange_destroy(exchange *x)
{
    if (!x) return;
    for (int k = 0; x->plugin && k < x->n; k++) {
        domain_exchange *d = &x->domains[k];
        if (d->ready) x->plugin->event_destroy(x->devices[k].index, d->ready);
        if (d->taken) x->plugin->event_destroy(x->devices[k].index, d->taken);
        x->plugin->release(x->devices[k].index, d->tables);
        base_free(d->packed);
    }
    base_free(x);
}

static mlff_status connect_gpus(exchange *x)
{
    mlff_status status = MLFF_OK;
    int indices[MAX_DOMAINS];
    MLFF_TRY(device_plugin_get(&x->plugin));
    for (int k = 0; k < x->n; k++) indices[k] = x->devices[k].index;
    MLFF_TRY(x->plugin->peers_connect(indices, x->n));
    for (int k = 0; k < x->n; k++) {
        MLFF_TRY(x->plugin->event_create(indices[k], &x->domains[k].ready));
        MLFF_TRY(x->plugin->event_create(indices[k], &x->domains[k].taken));
    }
done:
    return status;
}

mlff_status exchange_create(crew *threads, const decomposition *domains, const mlff_device *devices, exchange **exchange_out)
{
    mlff_status status = MLFF_OK;
    exchange *x = base_alloc(1, sizeof *x, "domains");
    if (!x) return MLFF_ERR_MEMORY;
    x->crew = threads;
    x->decomposition = domains;
    x->devices = devices;
    x->n = domains->n_domains;
    for (int k = 0; k < x->n; k++) x->domains[k].all = x, x->domains[k].index = k;
    if (devices[0].kind == MLFF_CUDA) MLFF_TRY(connect_gpus(x));
    *exchange_out = x;
    x = NULL;
done:
    exchange_destroy(x);
    return status;
}

// ---- on the CPU ---------------------------------------------------------------------------------------------------------

static void *row_of(const mlff_halo_array *array, int32_t row)
{
    return (char *)array->data + (size_t)row * (size_t)array->width * (size_t)array->element_bytes;
}

static void add_row(void *to, const void *from, int width, int element_bytes)
{
    if (element_bytes == 4)
        for (int k = 0; k < width; k++) ((float *)to)[k] += ((const float *)from)[k];
    else
        for (int k = 0; k < width; k++) ((double *)to)[k] += ((const double *)from)[k];
}

static void copy_rows(const exchange *x, const domain_exchange *d, int n_arrays)
{
    const domain_atoms *atoms = &x->decomposition->domains[d->index];
    for (int g = 0; g < atoms->n_local - atoms->n_owned; g++)
        for (int a = 0; a < n_arrays; a++) {
            const mlff_halo_array *to = &d->arrays[a], *from = &x->domains[atoms->source[g]].arrays[a];
            memcpy(row_of(to, atoms->n_owned + g), row_of(from, atoms->source_row[g]),
                   (size_t)to->width * (size_t)to->element_bytes);
        }
}

static void add_rows(const exchange *x, const domain_exchange *d, int n_arrays)
{
    const domain_atoms *atoms = &x->decomposition->domains[d->index];
    for (int k = 0; k < atoms->n_shared; k++)
        for (int32_t j = atoms->holder_first[k]; j < atoms->holder_first[k + 1]; j++)
            for (int a = 0; a < n_arrays; a++) {
                const mlff_halo_array *to = &d->arrays[a];
                add_row(row_of(to, atoms->shared[k]), row_of(&x->domains[atoms->holder[j]].arrays[a], atoms->holder_row[j]),
                        to->width, to->element_bytes);
            }
}

// ---- on GPUs ------------------------------------------------------------------------------------------------------------

// The tables in one block, in the order of these names.
enum { SOURCE, SOURCE_ROW, SHARED, HOLDER_FIRST, HOLDER, HOLDER_ROW, N_TABLES };

static void list_tables(const domain_atoms *a, const int32_t *tables[N_TABLES], size_t lengths[N_TABLES])
{
    const size_t n_ghosts = (size_t)(a->n_local - a->n_owned), n_copies = (size_t)a->holder_first[a->n_shared];
    const int32_t *const arrays[N_TABLES] = {a->source, a->source_row, a->shared, a->holder_first, a->holder, a->holder_row};
    const size_t sizes[N_TABLES] = {n_ghosts, n_ghosts, (size_t)a->n_shared, (size_t)a->n_shared + 1, n_copies, n_copies};
    memcpy(tables, arrays, sizeof arrays);
    memcpy(lengths, sizes, sizeof sizes);
}

static const int32_t *device_table(const domain_exchange *d, const domain_atoms *atoms, int table)
{
    const int32_t *arrays[N_TABLES];
    size_t lengths[N_TABLES], at = 0;
    list_tables(atoms, arrays, lengths);
    for (int t = 0; t < table; t++) at += lengths[t];
    return d->tables + at;
}

mlff_status exchange_update(exchange *x, int domain)
{
    mlff_status status = MLFF_OK;
    domain_exchange *d = &x->domains[domain];
    const int32_t *arrays[N_TABLES];
    size_t lengths[N_TABLES], n = 0;
    if (!x->plugin) return MLFF_OK;
    list_tables(&x->decomposition->domains[domain], arrays, lengths);
    for (int t = 0; t < N_TABLES; t++) n += lengths[t];
    MLFF_TRY(base_grow(&d->packed, &d->packed_capacity, n, sizeof(int32_t), "ghosts"));
    if (n * sizeof(int32_t) > d->table_bytes) {
        const size_t bytes = n * sizeof(int32_t) + n * sizeof(int32_t) / 4;
        x->plugin->release(x->devices[domain].index, d->tables);
        d->tables = NULL;
        d->table_bytes = 0;
        void *memory;
        MLFF_TRY(x->plugin->allocate(x->devices[domain].index, bytes, &memory));
        d->tables = memory;
        d->table_bytes = bytes;
    }
    n = 0;
    for (int t = 0; t < N_TABLES; t++) {
        if (lengths[t] > 0) memcpy(d->packed + n, arrays[t], lengths[t] * sizeof(int32_t));
        n += lengths[t];
    }
    MLFF_TRY(x->plugin->copy(x->devices[domain].index, d->tables, d->packed, n * sizeof(int32_t)));
done:
    return status;
}

const device_plugin *exchange_plugin(const exchange *x)
{
    return x->plugin;
}

void exchange_tables(const exchange *x, int domain, domain_motion *motion)
{
    const domain_atoms *atoms = &x->decomposition->domains[domain];
    const int32_t *tables[N_TABLES];
    size_t lengths[N_TABLES];
    list_tables(atoms, tables, lengths);
    for (int t = 0; t < N_TABLES && x->plugin; t++) tables[t] = device_table(&x->domains[domain], atoms, t);
    motion->n_shared = atoms->n_shared;
    motion->source = tables[SOURCE];
    motion->source_row = tables[SOURCE_ROW];
    motion->shared = tables[SHARED];
    motion->first = tables[HOLDER_FIRST];
    motion->holder = tables[HOLDER];
    motion->holder_row = tables[HOLDER_ROW];
}

static mlff_status enqueue_rows(const exchange *x, const domain_exchange *d, bool forward, int n_arrays, void *stream)
{
    const domain_atoms *atoms = &x->decomposition->domains[d->index];
    for (int a = 0; a < n_arrays; a++) {
        device_rows rows = {.to = d->arrays[a].data, .width = d->arrays[a].width};
        if (d->arrays[a].element_bytes != 4 || rows.width % 4 != 0)
            return mlff_fail(MLFF_ERR_UNSUPPORTED, "features of %d numbers of %d bytes cannot be exchanged between GPUs",
                             rows.width, d->arrays[a].element_bytes);
        for (int k = 0; k < x->n; k++) rows.from[k] = x->domains[k].arrays[a].data;
        if (forward) {
            rows.n_rows = atoms->n_local - atoms->n_owned;
            rows.to_first = atoms->n_owned;
            rows.source = device_table(d, atoms, SOURCE);
            rows.row = device_table(d, atoms, SOURCE_ROW);
        } else {
            rows.n_rows = atoms->n_shared;
            rows.add = 1;
            rows.to_row = device_table(d, atoms, SHARED);
            rows.first = device_table(d, atoms, HOLDER_FIRST);
            rows.source = device_table(d, atoms, HOLDER);
            rows.row = device_table(d, atoms, HOLDER_ROW);
        }
        const mlff_status status =
            rows.n_rows > 0 ? x->plugin->rows_exchange(x->devices[d->index].index, &rows, stream) : MLFF_OK;
        if (status != MLFF_OK) return status;
    }
    return MLFF_OK;
}

// The stream goes on when this event of all other domains is over. A domain without atoms takes no part.
static mlff_status wait_for_others(const exchange *x, const domain_exchange *d, size_t event, void *stream)
{
    for (int k = 0; k < x->n; k++) {
        if (k == d->index || x->decomposition->domains[k].n_owned == 0) continue;
        void *const *at = (void *const *)((const char *)&x->domains[k] + event);
        const mlff_status status = x->plugin->stream_wait(stream, *at);
        if (status != MLFF_OK) return status;
    }
    return MLFF_OK;
}

// ---- the hooks ----------------------------------------------------------------------------------------------------------

static bool barrier(domain_exchange *d)
{
    const int64_t start = base_clock_ns();
    const bool good = crew_barrier(d->all->crew);
    d->wait_ns += base_clock_ns() - start;
    return good;
}

static void zero_ghosts(const exchange *x, const domain_exchange *d, int n_arrays)
{
    const domain_atoms *atoms = &x->decomposition->domains[d->index];
    for (int a = 0; a < n_arrays; a++)
        memset(row_of(&d->arrays[a], atoms->n_owned), 0,
               (size_t)(atoms->n_local - atoms->n_owned) * (size_t)d->arrays[a].width * (size_t)d->arrays[a].element_bytes);
}

static mlff_status exchange_on_cpu(exchange *x, domain_exchange *d, bool forward, int n_arrays)
{
    if (!barrier(d)) return crew_ended();
    (forward ? copy_rows : add_rows)(x, d, n_arrays);
    if (!barrier(d)) return crew_ended();
    if (!forward) zero_ghosts(x, d, n_arrays);
    return MLFF_OK;
}

static mlff_status exchange_on_gpu(exchange *x, domain_exchange *d, bool forward, int n_arrays, void *stream)
{
    mlff_status status = MLFF_OK;
    const int gpu = x->devices[d->index].index;
    const domain_atoms *atoms = &x->decomposition->domains[d->index];
    MLFF_TRY(x->plugin->event_record(gpu, d->ready, stream));
    if (!barrier(d)) return crew_ended();
    MLFF_TRY(wait_for_others(x, d, offsetof(domain_exchange, ready), stream));
    MLFF_TRY(enqueue_rows(x, d, forward, n_arrays, stream));
    MLFF_TRY(x->plugin->event_record(gpu, d->taken, stream));
    if (!barrier(d)) return crew_ended();
    MLFF_TRY(wait_for_others(x, d, offsetof(domain_exchange, taken), stream));
    for (int a = 0; !forward && a < n_arrays; a++)
        MLFF_TRY(x->plugin->zero(gpu, row_of(&d->arrays[a], atoms->n_owned),
                                 (size_t)(atoms->n_local - atoms->n_owned) * (size_t)d->arrays[a].width * sizeof(float), stream));
done:
    return status;
}

static mlff_status exchange_arrays(domain_exchange *d, bool forward, const mlff_halo_array *arrays, int n_arrays,
                                   mlff_location location, void *stream)
{
    exchange *x = d->all;
    if (n_arrays > MAX_ARRAYS)
        return mlff_fail(MLFF_ERR_UNSUPPORTED, "%d arrays in one exchange; at most %d", n_arrays, MAX_ARRAYS);
    const int64_t start = base_clock_ns();
    memcpy(d->arrays, arrays, (size_t)n_arrays * sizeof *arrays);
    const mlff_status status =
        location == MLFF_HOST ? exchange_on_cpu(x, d, forward, n_arrays) : exchange_on_gpu(x, d, forward, n_arrays, stream);
    d->total_ns += base_clock_ns() - start;
    if (location == MLFF_HOST) d->apart_ns += base_clock_ns() - start; // a GPU's evaluator times exchanges itself
    return status;
}

static mlff_status forward_hook(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                void *stream)
{
    (void)layer;
    return exchange_arrays(context, true, arrays, n_arrays, location, stream);
}

static mlff_status reverse_hook(void *context, int layer, const mlff_halo_array *arrays, int n_arrays, mlff_location location,
                                void *stream)
{
    (void)layer;
    return exchange_arrays(context, false, arrays, n_arrays, location, stream);
}

static bool timed_barrier(domain_exchange *d)
{
    const int64_t start = base_clock_ns();
    const bool good = barrier(d);
    d->total_ns += base_clock_ns() - start;
    return good;
}

bool exchange_barrier(exchange *x, int domain)
{
    domain_exchange *d = &x->domains[domain];
    const int64_t before = d->total_ns;
    const bool good = timed_barrier(d);
    d->apart_ns += d->total_ns - before;
    return good;
}

// Flags are read before the barrier that ends the step, and written in the next. A domain without atoms takes no part.
static mlff_status any_hook(void *context, int *flag)
{
    domain_exchange *d = context;
    const exchange *x = d->all;
    d->flag = *flag;
    if (!timed_barrier(d)) return crew_ended();
    for (int k = 0; k < x->n; k++)
        if (x->decomposition->domains[k].n_owned > 0) *flag |= x->domains[k].flag;
    return MLFF_OK;
}

mlff_halo exchange_hooks(exchange *x, int domain)
{
    return (mlff_halo){forward_hook, reverse_hook, &x->domains[domain], any_hook};
}

int64_t exchange_apart(const exchange *x, int domain)
{
    return x->domains[domain].apart_ns;
}

void exchange_times(const exchange *x, int domain, double *total_ns, double *wait_ns)
{
    *total_ns = (double)x->domains[domain].total_ns;
    *wait_ns = (double)x->domains[domain].wait_ns;
}
