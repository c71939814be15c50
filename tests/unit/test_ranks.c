// SPDX-License-Identifier: MIT
// Purpose: profiles of the ranks of one run over MPI: their files, and what is said of the load's imbalance where it is planted, where there
// is none, where processes waited for a CPU and where too little was seen. The clock is synthetic.
#include "profile/ranks/rank_report.h"
#include "synthetic.h"
#include "synthetic_clock.h"
#include "synthetic_process.h"
#include "unit/test_folder.h"

typedef struct planted {
    double computing_us, exchange_us, stage_ns[2];
} planted;

static const mlff_stage planted_stages[] = {{"message", "forward", 0, ""}, {"exchange", "", -1, ""}};

static mlff_status makes_no_step(void *context, const mlff_system *frame, unsigned wanted, double *energy, double *forces,
                                 double *stress)
{
    (void)context, (void)frame, (void)wanted, (void)energy, (void)forces, (void)stress;
    return mlff_fail(MLFF_ERR_UNSUPPORTED, "called");
}

static mlff_status compute(void *context)
{
    planted *p = context;
    for (int k = 0; k < 2; k++) {
        const int64_t begin = mlff_clock_ns();
        synthetic_wait(k == 0 ? p->computing_us : p->exchange_us);
        p->stage_ns[k] = (double)(mlff_clock_ns() - begin);
    }
    return MLFF_OK;
}

static void times(void *context, double *time_ns)
{
    memcpy(time_ns, ((planted *)context)->stage_ns, sizeof(double) * 2);
}

// The profile of n_steps with that load, as its file says it.
static void save(int rank, int n_ranks, int n_atoms, planted load, int n_steps, double cpu_wait)
{
    mlff_system *system = synthetic_system(n_atoms > 0 ? n_atoms : 1);
    system->n_atoms = n_atoms;
    mlff_monitor *monitor;
    mlff_profile *profile;
    const mlff_callable callable = {.struct_size = sizeof callable,
                                    .name = "planted",
                                    .context = &load,
                                    .properties = MLFF_ENERGY | MLFF_FORCES,
                                    .step = makes_no_step,
                                    .n_stages = 2,
                                    .stages = planted_stages,
                                    .stage_times = times};
    assert_ok(mlff_monitor_create(&callable, system, NAN, 100, &monitor));
    for (int i = 0; i < n_steps; i++) assert_ok(mlff_monitor_call(monitor, compute, &load));
    assert_ok(mlff_monitor_profile(monitor, "rank", NULL, &profile));
    profile->tail.cpu_wait_share = cpu_wait;
    for (int k = 0; k < profile->n_stages; k++) assert_string_not_equal(profile->stages[k].name, "integrate");
    assert_near(profile->summary.latency_ms.median, 1e-3 * (load.computing_us + load.exchange_us), 0.001);
    assert_ok(mlff_profile_save_rank(profile, in_folder("run.json"), rank, n_ranks, 100 + rank));
    mlff_profile_destroy(profile);
    mlff_monitor_destroy(monitor);
    mlff_system_destroy(system);
}

static void load_all(mlff_profile ***profiles, int expected)
{
    int n;
    assert_ok(mlff_profile_load_runs(in_folder("run.json"), profiles, &n));
    assert_int_equal(n, expected);
}

static void remove_files(void)
{
    unlink(in_folder("run.json"));
    unlink(in_folder("run.rank1.json"));
    unlink(in_folder("run.rank2.json"));
}

// What is said of three ranks, of which the second computes `longer` times as long as the others.
static void judge(double longer, int n_steps, double cpu_wait, rank_judgement expected, const char *words)
{
    mlff_profile **profiles;
    rank_report report;
    char *text, sentence[512];
    for (int rank = 0; rank < 3; rank++) {
        const double computing = 20 * (rank == 1 ? longer : 1);
        const planted load = {.computing_us = computing, .exchange_us = 20 * longer + 5 - computing};
        save(rank, 3, rank == 1 ? 12 : 8, load, n_steps, rank == 2 ? cpu_wait : 0.01);
    }
    load_all(&profiles, 3);
    const mlff_profile *const *all = (const mlff_profile *const *)profiles;
    assert_ok(ranks_report(all, 3, &report));
    ranks_sentence(&report, sentence, sizeof sentence);
    if (report.judgement != expected || !strstr(sentence, words)) fail_msg("\"%s\", expected \"%s\"", sentence, words);
    assert_int_equal(report.rows[1].n_owned, 12);
    assert_int_equal(report.rows[1].n_ghosts, 101);
    assert_near(report.rows[1].computing_ms, 0.02 * longer, 0.001);
    assert_near(report.rows[1].exchange_ms, 0.005, 0.001);
    if (expected == RANKS_UNBALANCED) { // of a mean of (1 + 1 + longer) / 3
        assert_near(report.ratio.value, 3 * longer / (2 + longer), 0.01);
        assert_near(report.atoms_ratio, 12 * 3.0 / 28, 1e-9);
    }
    rank_report_free(&report);
    assert_ok(mlff_profile_ranks_text(all, 3, 0, &text));
    assert_non_null(strstr(text, "Load imbalance") ? text : strstr(text, "No load imbalance"));
    mlff_text_free(text);
    assert_ok(mlff_profile_html(all, 3, NULL, &text));
    assert_non_null(strstr(text, "<h2>Ranks</h2>"));
    assert_null(strstr(text, "<h2>Scaling</h2>")); // ranks of other sizes are no series of sizes
    mlff_text_free(text);
    mlff_profile_destroy_runs(profiles, 3);
    remove_files();
}

static void test_imbalance(void **state)
{
    (void)state;
    judge(1.5, 1600, 0.01, RANKS_UNBALANCED, "rank 1 computes 1.28");
    judge(1.0, 1600, 0.01, RANKS_BALANCED, "No load imbalance beyond 5 %");
    judge(1.5, 1600, 0.20, RANKS_CROWDED, "Rank 2 was ready and had no CPU for 20 %");
    judge(1.5, 1600, NAN, RANKS_CROWDED, "not known how long rank 2");
    judge(1.5, 100, 0.01, RANKS_SHORT, "too few steps");
}

static void test_files(void **state)
{
    (void)state;
    char path[64];
    mlff_profile **profiles = NULL;
    rank_report report;
    char *text;
    int n = 0;
    const planted load = {.computing_us = 5, .exchange_us = 1};
    assert_ok(mlff_profile_rank_path("a.b/run", 3, path, sizeof path));
    assert_string_equal(path, "a.b/run.rank3");
    assert_ok(mlff_profile_rank_path("a.b/run.json", 12, path, sizeof path));
    assert_string_equal(path, "a.b/run.rank12.json");
    assert_ok(mlff_profile_rank_path("run.json", 0, path, sizeof path));
    assert_string_equal(path, "run.json");
    assert_int_equal(mlff_profile_rank_path("run.json", 1, path, 8), MLFF_ERR_LIMIT);
    save(0, 1, 8, load, 20, 0.01); // one rank: a usual profile
    load_all(&profiles, 1);
    assert_ok(ranks_report((const mlff_profile *const *)profiles, 1, &report));
    assert_int_equal(report.n, 0);
    assert_ok(mlff_profile_ranks_text((const mlff_profile *const *)profiles, 1, 0, &text));
    assert_string_equal(text, "");
    mlff_text_free(text);
    mlff_profile_destroy_runs(profiles, 1);
    save(0, 2, 8, load, 20, 0.01);
    assert_int_equal(mlff_profile_load_runs(in_folder("run.json"), &profiles, &n), MLFF_ERR_IO);
    assert_non_null(strstr(mlff_last_error(), "rank 0 of 2; that of rank 1 cannot be read"));
    save(1, 3, 8, load, 20, 0.01); // of another run
    assert_int_equal(mlff_profile_load_runs(in_folder("run.json"), &profiles, &n), MLFF_ERR_FORMAT);
    save(1, 2, 0, load, 20, 0.01); // owns no atoms
    load_all(&profiles, 2);
    assert_int_equal(profiles[1]->summary.n_atoms, 0);
    mlff_profile_destroy_runs(profiles, 2);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_imbalance), cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
