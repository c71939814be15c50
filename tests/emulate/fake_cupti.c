// SPDX-License-Identifier: MIT
// fake_cupti.c: a libcupti.so without a GPU behind it, for tests: what a test plants comes back as records of the layout that
// CUDA 12 and 13 write. FAKE_CUPTI in the environment asks for misbehaviour: "held" (another subscriber), "old", "new"
// (versions), "refused" (no privileges), "broken" (the flush fails).
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { RECORD_BYTES = 216, RECORDS_MAX = 20000, OTHER_SUBSCRIBER = 39, NO_PRIVILEGES = 35, UNKNOWN = 999 };

typedef void requested_function(uint8_t **buffer, size_t *bytes, size_t *max_records);
typedef void completed_function(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);

static uint8_t records[RECORDS_MAX][RECORD_BYTES];
static int n_records, enabled[64], subscribed, n_detached;
static size_t dropped;
static requested_function *requested;
static completed_function *completed;
static int64_t (*clock_ns)(void);
static const int64_t clock_offset = 1700000000000000000; // CUPTI's clock is the time of day

EXPORT void fake_cupti_clock(int64_t (*function)(void));
EXPORT void fake_cupti_drop(size_t n);
EXPORT int fake_cupti_listens(void);
EXPORT int fake_cupti_detached(void);
EXPORT int cuptiFinalize(void);
EXPORT void fake_cupti_record(int kind, const char *name, int detail, uint32_t stream, int64_t start_ns, int64_t end_ns);
EXPORT int cuptiGetVersion(uint32_t *version);
EXPORT int cuptiGetResultString(int result, const char **text);
EXPORT int cuptiSubscribe(void **subscriber, void *callback, void *data);
EXPORT int cuptiUnsubscribe(void *subscriber);
EXPORT int cuptiActivityRegisterCallbacks(requested_function *wanted, completed_function *done);
EXPORT int cuptiActivityEnable(int kind);
EXPORT int cuptiActivityDisable(int kind);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, uint8_t **record);
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n);
EXPORT int cuptiGetTimestamp(uint64_t *timestamp);
#ifndef FAKE_WITHOUT_FLUSH
EXPORT int cuptiActivityFlushAll(uint32_t flag);
#endif

static int asked(const char *misbehaviour)
{
    const char *text = getenv("FAKE_CUPTI");
    return text && strcmp(text, misbehaviour) == 0;
}

void fake_cupti_clock(int64_t (*function)(void))
{
    clock_ns = function;
}

void fake_cupti_drop(size_t n)
{
    dropped = n;
}

int fake_cupti_listens(void)
{
    return subscribed;
}

int fake_cupti_detached(void)
{
    return n_detached;
}

int cuptiFinalize(void)
{
    n_detached++;
    return 0;
}

static void put(uint8_t *record, size_t offset, const void *value, size_t bytes)
{
    memcpy(record + offset, value, bytes);
}

// Times are of the test's clock; `detail` is a copy's direction or a synchronization's type.
void fake_cupti_record(int kind, const char *name, int detail, uint32_t stream, int64_t start_ns, int64_t end_ns)
{
    if (kind < 0 || kind >= 64 || !enabled[kind] || n_records == RECORDS_MAX) return;
    uint8_t *record = records[n_records++];
    uint64_t start = start_ns ? (uint64_t)(start_ns + clock_offset) : 0, end = end_ns ? (uint64_t)(end_ns + clock_offset) : 0;
    uint64_t node = 77;
    uint32_t number = (uint32_t)kind, device = 0;
    memset(record, 0xA5, RECORD_BYTES); // what is not named is not to be read
    put(record, 0, &number, 4);
    if (kind == 38) {
        number = (uint32_t)detail;
        put(record, 4, &number, 4);
        put(record, 8, &start, 8);
        put(record, 16, &end, 8);
        return;
    }
    put(record, 16, &start, 8);
    put(record, 24, &end, 8);
    if (kind == 10) {
        put(record, 40, &device, 4);
        put(record, 48, &stream, 4);
        put(record, 104, &name, sizeof name);
        put(record, 144, &node, 8);
    } else {
        record[4] = (uint8_t)detail;
        put(record, 32, &device, 4);
        put(record, 40, &stream, 4);
    }
}

int cuptiGetVersion(uint32_t *version)
{
    *version = asked("old") ? 9 : asked("new") ? 150000 : 130001;
    return 0;
}

int cuptiGetResultString(int result, const char **text)
{
    *text = result == UNKNOWN ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_ERROR_PLANTED";
    return 0;
}

int cuptiSubscribe(void **subscriber, void *callback, void *data)
{
    (void)callback, (void)data;
    if (asked("held") || subscribed) return OTHER_SUBSCRIBER;
    subscribed = 1;
    *subscriber = records;
    return 0;
}

int cuptiUnsubscribe(void *subscriber)
{
    (void)subscriber;
    subscribed = 0;
    return 0;
}

int cuptiActivityRegisterCallbacks(requested_function *wanted, completed_function *done)
{
    requested = wanted;
    completed = done;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    if (asked("refused")) return NO_PRIVILEGES;
    enabled[kind] = 1;
    return 0;
}

int cuptiActivityDisable(int kind)
{
    enabled[kind] = 0;
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, uint8_t **record)
{
    uint8_t *next = *record ? *record + RECORD_BYTES : buffer;
    if (next + RECORD_BYTES > buffer + valid_bytes) return 12; // CUPTI_ERROR_MAX_LIMIT_REACHED
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
    (void)context, (void)stream;
    *n = dropped;
    dropped = 0;
    return 0;
}

int cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = (uint64_t)((clock_ns ? clock_ns() : 0) + clock_offset);
    return 0;
}

#ifndef FAKE_WITHOUT_FLUSH
int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    if (asked("broken")) return UNKNOWN;
    for (int at = 0; at < n_records;) {
        uint8_t *buffer = NULL;
        size_t bytes = 0, limit = 0, used = 0;
        requested(&buffer, &bytes, &limit);
        if (!buffer) return UNKNOWN;
        for (; at < n_records && used + RECORD_BYTES <= bytes; at++, used += RECORD_BYTES)
            memcpy(buffer + used, records[at], RECORD_BYTES);
        completed(NULL, 0, buffer, bytes, used);
    }
    n_records = 0;
    return 0;
}
#endif
