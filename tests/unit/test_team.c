// SPDX-License-Identifier: MIT
// The team of threads: all members work, barriers hold, a busy team leaves its callers alone, a forked child too.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "device/team.h"
#include "device/team_size.h"
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
            assert_in_range(c.n_seen, 1, sizes[k]); // fewer on a busy machine
            assert_int_equal(c.n_members, c.n_seen);
            assert_int_equal(c.sum, 20 * c.n_seen);
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

// ---- the number of threads on a busy machine, in planted time --------------------------------------------------------------

// Runs for `ms`: one thread takes 1000 us, n threads 1000 / n us and `asleep_us(n)` of waiting. Returns the mean time of a run, us.
static double planted(pace *p, int n_wanted, int64_t *now, int ms, double (*asleep_us)(int n))
{
    int64_t end = *now + (int64_t)ms * 1000000, n_runs = 0, begin = *now;
    while (*now < end) {
        int n = pace_threads(p, n_wanted, *now);
        assert_in_range(n, 1, n_wanted);
        double asleep = n > 1 ? asleep_us(n) : 0;
        int64_t elapsed = (int64_t)(1e3 * (1000.0 / n + asleep));
        *now += elapsed;
        if (n > 1) pace_record(p, n, elapsed, (int64_t)(1e3 * asleep), *now);
        n_runs++;
    }
    return 1e-3 * (double)(*now - begin) / (double)n_runs;
}

static double quiet(int n)
{
    (void)n;
    return 20;
}

static double crowded(int n)
{
    return 1000.0 / n + 700; // each barrier waits for a thread that another program has taken the place of
}

static double starved(int n)
{
    return 50000 - 1000.0 / n; // each barrier waits for a time slice of every other program
}

static double crowded_above_two(int n)
{
    return n > 2 ? 2000 : 20;
}

static void test_pace(void **state)
{
    (void)state;
    int64_t now = 1;
    pace p = {0};
    assert_true(planted(&p, 2, &now, 5000, quiet) < 521); // two threads throughout
    double busy = planted(&p, 2, &now, 20000, crowded);
    assert_true(busy < 1100);          // one thread takes 1000 us, two take 1700: at most 10 % above the better
    planted(&p, 2, &now, 2500, quiet); // the longest hold is 2 s
    assert_true(planted(&p, 2, &now, 1000, quiet) < 521);

    pace slow = {0};
    assert_true(planted(&slow, 2, &now, 20000, starved) < 1100); // two threads take 50 ms: each trial must end after one run

    pace many = {0};
    assert_true(planted(&many, 16, &now, 20000, crowded_above_two) < 600); // two of sixteen: 520 us, with the trials of four
    assert_int_equal(pace_threads(&many, 1, now), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_callers_at_once),
                                       cmocka_unit_test(test_forked_child), cmocka_unit_test(test_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
