// SPDX-License-Identifier: MIT
// The team of threads: all members work, barriers hold, a busy team leaves its callers alone, a forked child too.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "device/team.h"
#include "support.h"

typedef struct counters {
    _Atomic int n_members, sum, early;
    int n_seen;
} counters;

static void count(void *context, const team_member *member)
{
    counters *c = context;
    atomic_fetch_add(&c->n_members, 1);
    if (member->thread == 0) c->n_seen = member->n;
    for (int round = 1; round <= 20; round++) {
        atomic_fetch_add(&c->sum, 1);
        team_barrier(member);
        if (atomic_load(&c->sum) < round * member->n) atomic_fetch_add(&c->early, 1);
        team_barrier(member);
    }
}

// Sizes up and down, more threads than cores among them; a thousand runs each.
static void test_runs(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 5, 3, 2, 1, 7, 2, 8};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int run = 0; run < (sizes[k] > 2 ? 50 : 1000); run++) {
            counters c = {0};
            team_run(sizes[k], count, &c);
            assert_int_equal(c.n_seen, sizes[k]);
            assert_int_equal(c.n_members, sizes[k]);
            assert_int_equal(c.sum, 20 * sizes[k]);
            assert_int_equal(c.early, 0);
        }
}

static void *many_runs(void *argument)
{
    (void)argument;
    for (int run = 0; run < 300; run++) {
        counters c = {0};
        team_run(2, count, &c);
        if (c.n_members != c.n_seen || c.sum != 20 * c.n_seen || c.early) return "wrong";
    }
    return NULL;
}

static void test_callers_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&threads[t], NULL, many_runs, NULL), 0);
    for (int t = 0; t < 4; t++) {
        void *wrong;
        pthread_join(threads[t], &wrong);
        assert_null(wrong);
    }
}

static void test_forked_child(void **state)
{
    (void)state;
    counters c = {0};
    team_run(2, count, &c); // the team exists
    pid_t child = fork();
    if (child == 0) {
        counters own = {0};
        team_run(2, count, &own);
        _exit(own.n_seen == 1 && own.sum == 20 ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_callers_at_once),
                                       cmocka_unit_test(test_forked_child)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
