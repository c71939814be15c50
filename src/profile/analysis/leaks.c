// SPDX-License-Identifier: MIT
// leaks.c: the verdicts on memory, ledger against ledger, and in words.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

// What a ledger's name says beside the place where the memory is.
static const char *allocator(const profile_ledger *ledger)
{
    static const char device[] = "device: ";
    return ledger->name + (strncmp(ledger->name, device, sizeof device - 1) == 0 ? sizeof device - 1 : 0);
}

// The ledger of what is used of a reserved one: "heap" of "heap reserved", "device: torch allocated" of "torch reserved".
static const profile_ledger *used_of(const mlff_profile *profile, const profile_ledger *reserved)
{
    static const char word[] = "reserved";
    const char *name = allocator(reserved), *at = strstr(name, word);
    if (!at) return NULL;
    size_t length = (size_t)(at - name);
    while (length > 0 && name[length - 1] == ' ') length--;
    for (int k = 0; k < profile->n_ledgers; k++) {
        const profile_ledger *other = &profile->ledgers[k];
        if (other == reserved || strncmp(allocator(other), name, length) != 0) continue;
        const char *rest = allocator(other) + length + strspn(allocator(other) + length, " ");
        if (*rest == 0 || strncmp(rest, "allocated", 9) == 0 || strncmp(rest, "used", 4) == 0 || strncmp(rest, "in use", 6) == 0)
            return other;
    }
    return NULL;
}

void leaks_relate(mlff_profile *profile)
{
    bool heap_fragmented = false, heap_is_garbage = false;
    for (int k = 0; k < profile->n_ledgers; k++) {
        profile_ledger *ledger = &profile->ledgers[k];
        const profile_ledger *used = used_of(profile, ledger);
        if (!used || ledger->leak.kind != LEAK_GROWING || used->leak.kind != LEAK_STABLE) continue;
        ledger->leak.kind = LEAK_FRAGMENTED;
        heap_fragmented = heap_fragmented || strcmp(ledger->name, "heap reserved") == 0;
    }
    for (int k = 0; k < profile->n_ledgers; k++)
        heap_is_garbage |= strcmp(profile->ledgers[k].name, "heap") == 0 && profile->ledgers[k].leak.kind == LEAK_GARBAGE;
    for (int k = 0; k < profile->n_ledgers && heap_is_garbage; k++) { // freed memory may stay in the reserve
        profile_ledger *ledger = &profile->ledgers[k];
        const bool holds_heap = strcmp(ledger->name, "resident") == 0 || strcmp(ledger->name, "heap reserved") == 0;
        if (holds_heap && (ledger->leak.kind == LEAK_GROWING || ledger->leak.kind == LEAK_INCONCLUSIVE))
            ledger->leak.kind = LEAK_GARBAGE;
    }
    for (int k = 0; k < profile->n_ledgers && heap_fragmented; k++) // the pages of the reserve are resident
        if (strcmp(profile->ledgers[k].name, "resident") == 0 && profile->ledgers[k].leak.kind == LEAK_GROWING)
            profile->ledgers[k].leak.kind = LEAK_FRAGMENTED;
}

bool leaks_decides(const profile_ledger *ledger)
{
    return strncmp(ledger->name, "driver", 6) != 0;
}

int mlff_profile_leaks(const mlff_profile *profile)
{
    int n = 0;
    for (int k = 0; k < profile->n_ledgers; k++)
        n += profile->ledgers[k].leak.kind == LEAK_GROWING && leaks_decides(&profile->ledgers[k]);
    return n;
}

// Only of these it is known that they take from the host's memory: a force field may name its own as it likes.
static bool is_of_host(const profile_ledger *ledger)
{
    static const char *const names[] = {"resident", "heap", "heap reserved", "evaluator (host)"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(ledger->name, names[k]) == 0) return true;
    return false;
}

static const char *bytes_text(double bytes, char text[32])
{
    if (fabs(bytes) >= 1048576.0)
        base_format(text, 32, "%.3g MB", bytes / 1048576.0);
    else if (fabs(bytes) >= 1024.0)
        base_format(text, 32, "%.3g kB", bytes / 1024.0);
    else
        base_format(text, 32, "%.3g B", bytes);
    return text;
}

void leaks_text(const mlff_profile *profile, const profile_ledger *ledger, char *text, size_t text_bytes)
{
    char slope[32], low[32], high[32], end[96] = "";
    const leak_verdict *leak = &ledger->leak;
    static const char *const work[] = {"atom", "pair"};
    int length = snprintf(text, text_bytes, "%s", profile_leak_names[leak->kind]);
    char *rest = text + length;
    size_t room = text_bytes - (size_t)length;
    switch (leak->kind) {
    case LEAK_GROWING:
        if (profile->available_bytes > 0 && leak->bytes_per_sample > 0.0 && is_of_host(ledger))
            snprintf(end, sizeof end, ": memory ends in about %s steps",
                     PROFILE_NUMBER((double)profile->available_bytes / leak->bytes_per_sample, 2));
        snprintf(rest, room, " by %s a step (%s to %s at 95 %%)%s", bytes_text(leak->bytes_per_sample, slope),
                 bytes_text(leak->low, low), bytes_text(leak->high, high), end);
        break;
    case LEAK_INCONCLUSIVE:
        snprintf(rest, room, ": grew to the end, but not as steadily as a leak; measure longer. At most %s a step (at 95 %%)",
                 bytes_text(leak->high, high));
        break;
    case LEAK_EXPLAINED:
        snprintf(rest, room, ": it follows the number of %ss, %s for each", work[leak->explained_by != 0],
                 bytes_text(leak->bytes_per_unit, slope));
        break;
    case LEAK_GARBAGE: snprintf(rest, room, ": the garbage collector freed it after the run"); break;
    case LEAK_FRAGMENTED: snprintf(rest, room, ": reserved memory grows, what is used of it does not"); break;
    case LEAK_STABLE:
        if (isfinite(leak->detectable))
            snprintf(rest, room, " (a leak of %s a step or more would show)", bytes_text(leak->detectable, slope));
        break;
    default: break;
    }
}
