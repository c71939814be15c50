// SPDX-License-Identifier: MIT
// Teachers: labels of a model, of a caller's function and of GFN2-xTB, and structures that fail alone. xtb's energies were made
// with the command xtb 6.5.1 (xtb x.xyz --gfn 2 --acc 0.1) on the same coordinates. Without libxtb its tests are skipped.
#include "support.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlff_distill.h"
#include "train/teachers/teacher.h"

static mlff_system *molecule(const char *name)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, 0, 0, &system));
    return system;
}

static mlff_teacher *xtb(const char *name, int n_workers, double timeout_s)
{
    mlff_teacher_options options = mlff_teacher_options_default();
    options.n_threads = n_workers;
    options.timeout_s = timeout_s;
    mlff_teacher *teacher = NULL;
    mlff_status status = mlff_teacher_open(name, &options, &teacher);
    if (status == MLFF_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", mlff_last_error());
        skip();
    }
    assert_ok(status);
    return teacher;
}

static double energy_of(mlff_teacher *teacher, const mlff_system *system)
{
    mlff_label label;
    assert_ok(mlff_teacher_compute(teacher, &system, 1, &label));
    if (label.status != MLFF_OK) fail_msg("%s", label.problem);
    mlff_label_clear(&label);
    mlff_label_clear(NULL);
    return label.energy;
}

// Forces are minus the derivative of the energy; five-point differences, h = 0.002 Å. The largest difference, eV/Å.
static double worst_force(mlff_teacher *teacher, mlff_system *system)
{
    mlff_label label;
    const mlff_system *const systems[] = {system};
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    assert_int_equal(label.status, MLFF_OK);
    double worst = 0;
    for (int k = 0; k < 3 * system->n_atoms; k++) {
        static const double weights[5] = {1.0 / 12, -8.0 / 12, 0, 8.0 / 12, -1.0 / 12};
        const double at = system->positions[k], h = 0.002;
        double slope = 0;
        for (int p = 0; p < 5; p++) {
            if (p == 2) continue;
            system->positions[k] = at + (p - 2) * h;
            slope += weights[p] * energy_of(teacher, system) / h;
        }
        system->positions[k] = at;
        worst = fmax(worst, fabs(label.forces[k] + slope));
    }
    mlff_label_clear(&label);
    return worst;
}

static void test_xtb_forces(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn2", 2, 60);
    mlff_system *system = molecule("ethanol");
    assert_ok(mlff_system_perturb(system, 600, 1));
    const double worst = worst_force(teacher, system);
    printf("GFN2-xTB, ethanol: forces against differences of the energy: %.2e eV/Å\n", worst);
    // 1e-5 eV/Å: the self-consistent field ends at accuracy 0.1, which leaves some 2e-6
    assert_true(worst < 1e-5);
    mlff_system_destroy(system);
    mlff_teacher_destroy(teacher);
}

// Atoms with the same x, y or z, for which libxtb's own forces are wrong: a molecule built along the axes, one atom of which is moved along x.
static void test_xtb_aligned(void **state)
{
    (void)state;
    static const double shapes[][3] = {
        {0, 0, 0}, {0, 0, 1.4}, {1.05, 0, -0.35}, {-0.525, 0.91, -0.35}, {-0.525, -0.91, -0.35}, {0, 0.93, 1.7}};
    static const int species[] = {6, 8, 1, 1, 1, 1}; // methanol
    for (int method = 1; method <= 2; method++) {
        mlff_teacher *teacher = xtb(method == 1 ? "xtb:gfn1" : "xtb:gfn2", 2, 60);
        mlff_system *system;
        assert_ok(mlff_system_create(6, &system));
        for (int i = 0; i < 6; i++) {
            system->species[i] = species[i];
            memcpy(system->positions + 3 * i, shapes[i], sizeof shapes[i]);
        }
        system->positions[15] += 0.05;
        const double worst = worst_force(teacher, system);
        printf("GFN%d-xTB, methanol along the axes: forces against differences of the energy: %.2e eV/Å\n", method, worst);
        assert_true(worst < 2e-5); // as above; forces are larger here
        mlff_system_destroy(system);
        mlff_teacher_destroy(teacher);
    }
}

static void test_xtb_energies(void **state)
{
    (void)state;
    static const struct {
        const char *teacher, *molecule;
        double energy_hartree;
    } cases[] = {{"xtb:gfn2", "h2o", -5.070544446876},
                 {"xtb:gfn1", "h2o", -5.768772572862},
                 {"xtb:gfn2", "ethanol", -11.391867421493},
                 {"xtb:gfn1", "ethanol", -12.160955473621},
                 {"xtb:gfn2", "aspirin", -39.628504168339}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        mlff_teacher *teacher = xtb(cases[k].teacher, 1, 60);
        mlff_system *system = molecule(cases[k].molecule);
        const double energy = energy_of(teacher, system) / BASE_HARTREE_EV;
        // 2e-7 Eh: the command's own constants differ in the ninth digit
        if (!(fabs(energy - cases[k].energy_hartree) < 2e-7))
            fail_msg("%s %s: %.9f, the command says %.9f", cases[k].teacher, cases[k].molecule, energy, cases[k].energy_hartree);
        mlff_system_destroy(system);
        mlff_teacher_destroy(teacher);
    }
}

// The same labels to the last bit in any order and from any worker; structures that cannot be computed fail alone.
static void test_xtb_batch(void **state)
{
    (void)state;
    enum { N = 12 };
    static const char *const names[3] = {"h2o", "methane", "ethanol"};
    mlff_teacher *teacher = xtb("xtb:gfn2", 2, 60);
    mlff_system *systems[N];
    const mlff_system *forward[N], *backward[N];
    mlff_label labels[N], again[N];
    for (int k = 0; k < N; k++) {
        systems[k] = molecule(names[k % 3]);
        assert_ok(mlff_system_perturb(systems[k], 300, (uint64_t)k));
    }
    systems[4]->charge = 1;
    for (int c = 0; c < 3; c++) systems[5]->cell[4 * c] = 10, systems[5]->periodic[c] = 1;
    systems[7]->species[0] = 92;
    for (int k = 0; k < N; k++) forward[k] = backward[N - 1 - k] = systems[k];
    assert_ok(mlff_teacher_compute(teacher, forward, N, labels));
    assert_ok(mlff_teacher_compute(teacher, backward, N, again));
    for (int k = 0; k < N; k++) {
        const bool bad = k == 4 || k == 5 || k == 7;
        const mlff_label *other = &again[N - 1 - k];
        if ((labels[k].status != MLFF_OK) != bad) fail_msg("%d: %s", k, labels[k].problem);
        if (bad) {
            printf("refused: %s\n", labels[k].problem);
            continue;
        }
        assert_true(labels[k].energy == other->energy);
        assert_memory_equal(labels[k].forces, other->forces, 3 * (size_t)systems[k]->n_atoms * sizeof(double));
    }
    for (int k = 0; k < N; k++) {
        mlff_label_clear(&labels[k]);
        mlff_label_clear(&again[k]);
        mlff_system_destroy(systems[k]);
    }
    mlff_teacher_destroy(teacher);
}

// This process's children; at most `most`.
static int find_children(pid_t *children, int most)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    while (n < most && fscanf(file, "%d", &children[n]) == 1) n++;
    fclose(file);
    return n;
}

// Where no process can be started, the call fails, not a structure, which would be recorded as one that cannot be labelled.
static void test_xtb_no_process(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn2", 1, 60);
    mlff_system *system = molecule("h2o");
    const mlff_system *const systems[] = {system};
    mlff_label label;
    pid_t child;
    struct rlimit before, none;
    if (find_children(&child, 1) != 1) skip();
    kill(child, SIGKILL);
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label)); // the worker is lost
    assert_int_not_equal(label.status, MLFF_OK);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0; // no descriptor for its socket
    setrlimit(RLIMIT_NOFILE, &none);
    const mlff_status status = mlff_teacher_compute(teacher, systems, 1, &label);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(status, MLFF_ERR_LIMIT);
    assert_non_null(strstr(mlff_last_error(), "no socket"));
    assert_true(isfinite(energy_of(teacher, system)));
    mlff_system_destroy(system);
    mlff_teacher_destroy(teacher);
}

// A worker that dies costs its structure; the next one is computed by a new process.
static void test_xtb_crash(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn2", 1, 60);
    mlff_system *system = molecule("h2o");
    const mlff_system *const systems[] = {system};
    mlff_label label;
    pid_t child;
    const double energy = energy_of(teacher, system);
    if (find_children(&child, 1) != 1) skip(); // a kernel without that list
    // What ends a whole group of processes is the parent's to handle: no structure fails by it.
    kill(child, SIGTERM);
    kill(child, SIGINT);
    assert_true(energy_of(teacher, system) == energy);
    kill(child, SIGSEGV);
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    assert_int_not_equal(label.status, MLFF_OK);
    assert_non_null(strstr(label.problem, "signal 11"));
    assert_true(isnan(label.energy) && !label.forces);
    assert_true(energy_of(teacher, system) == energy);
    mlff_system_destroy(system);
    mlff_teacher_destroy(teacher);
}

static void test_xtb_timeout(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn2", 1, 0.05);
    mlff_system *slow = molecule("caffeine"), *quick = molecule("h2o");
    mlff_label label;
    pid_t child;
    const mlff_system *const systems[] = {slow};
    if (find_children(&child, 1) != 1) skip();
    kill(child, SIGSTOP); // hangs
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    assert_int_not_equal(label.status, MLFF_OK);
    assert_non_null(strstr(label.problem, "no answer within 0.05 s"));
    mlff_teacher_destroy(teacher);
    teacher = xtb("xtb:gfn2", 1, 60);
    assert_true(isfinite(energy_of(teacher, quick)));
    mlff_system_destroy(slow);
    mlff_system_destroy(quick);
    mlff_teacher_destroy(teacher);
    assert_int_equal(find_children(&child, 1), 0); // nothing is left behind
}

// A cluster of water.
static mlff_system *cluster(int n_atoms)
{
    mlff_system *system;
    assert_ok(mlff_system_build("water", n_atoms, 1, &system));
    memset(system->cell, 0, sizeof system->cell);
    memset(system->periodic, 0, sizeof system->periodic);
    return system;
}

// xtb's arrays on the stack do not end the process: of so many atoms they were more than the usual 8 MiB within 0.3 s.
static void test_xtb_large(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn2", 1, 3);
    mlff_system *system = cluster(648);
    const mlff_system *const systems[] = {system};
    mlff_label label;
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    if (label.status != MLFF_OK && !strstr(label.problem, "no answer within 3 s")) fail_msg("%s", label.problem);
    mlff_label_clear(&label);
    mlff_system_destroy(system);
    mlff_teacher_destroy(teacher);
}

// A worker ends with its parent, also in the midst of a structure.
static void test_xtb_parent_killed(void **state)
{
    (void)state;
    int ends[2], way = 0;
    pid_t worker = 0, ended = 0;
    mlff_teacher_destroy(xtb("xtb:gfn1", 1, 60)); // skips where there is no xtb
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); // the worker becomes this process's child
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        mlff_teacher *teacher = xtb("xtb:gfn1", 1, 600);
        mlff_label label;
        const mlff_system *const systems[] = {cluster(375)}; // takes 10 s and more
        if (find_children(&worker, 1) != 1) worker = 0;
        (void)!write(ends[1], &worker, sizeof worker);
        (void)mlff_teacher_compute(teacher, systems, 1, &label);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &worker, sizeof worker), sizeof worker);
    usleep(500000); // it computes
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (int k = 0; worker > 0 && ended == 0 && k < 60; k++) {
        ended = waitpid(worker, &way, WNOHANG);
        usleep(50000);
    }
    if (worker > 0 && ended != worker) {
        kill(worker, SIGKILL);
        waitpid(worker, NULL, 0);
        fail_msg("the worker still computes 3 s after its parent was killed");
    }
    assert_true(worker <= 0 || WIFEXITED(way));
    close(ends[0]);
    close(ends[1]);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// GFN1-xTB in a cell, against differences of its energy.
static void test_xtb_periodic(void **state)
{
    (void)state;
    mlff_teacher *teacher = xtb("xtb:gfn1", 1, 60);
    mlff_system *system;
    mlff_label label;
    assert_ok(mlff_system_build("water", 12, 1, &system));
    const mlff_system *const systems[] = {system};
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    if (label.status != MLFF_OK) fail_msg("%s", label.problem);
    const double h = 0.01, at = system->positions[4];
    system->positions[4] = at + h;
    const double above = energy_of(teacher, system);
    system->positions[4] = at - h;
    const double difference = label.forces[4] + (above - energy_of(teacher, system)) / (2 * h);
    printf("GFN1-xTB, 12 atoms of water in a cell: force against a difference of the energy: %.2e eV/Å\n", difference);
    // 2e-3 eV/Å: truncation of h² and of xtb's own sums over images
    assert_true(fabs(difference) < 2e-3);
    mlff_label_clear(&label);
    mlff_system_destroy(system);
    mlff_teacher_destroy(teacher);
}

static void test_model(void **state)
{
    (void)state;
    char path[] = "/tmp/test_teacher_XXXXXX.safetensors";
    close(mkstemps(path, 12));
    mlff_model *model = support_model(16, 2, "gaussian", "cosine", 0, 1);
    assert_ok(mlff_model_save(model, path));
    mlff_teacher *teacher;
    mlff_teacher_info info;
    assert_ok(mlff_teacher_open(path, NULL, &teacher));
    mlff_teacher_info_get(teacher, &info);
    assert_int_equal(strlen(info.hash), 64);
    assert_true(info.has_stress && info.has_atom_energies && info.n_members == 1);

    mlff_system *systems[3] = {molecule("ethanol"), molecule("h2o"), molecule("ethanol")};
    for (int c = 0; c < 3; c++) systems[1]->positions[3 + c] = systems[1]->positions[c]; // two atoms on one point
    const mlff_system *const list[3] = {systems[0], systems[1], systems[2]};
    mlff_label labels[3];
    assert_ok(mlff_teacher_compute(teacher, list, 3, labels));
    assert_true(labels[0].status == MLFF_OK && labels[1].status == MLFF_ERR_VALUE && labels[2].status == MLFF_OK);
    mlff_evaluator *evaluator = support_evaluator(model, MLFF_FLOAT32);
    double sum = 0;
    for (int i = 0; i < 9; i++) sum += labels[0].atom_energies[i];
    assert_true(fabs(support_energy(evaluator, systems[0]) - labels[0].energy) < 1e-6);
    assert_true(fabs(sum - labels[0].energy) < 1e-5);
    assert_true(isnan(labels[0].stress[0]) && isnan(labels[0].force_deviation));
    for (int k = 0; k < 3; k++) {
        mlff_label_clear(&labels[k]);
        mlff_system_destroy(systems[k]);
    }
    mlff_evaluator_destroy(evaluator);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(model);
    unlink(path);
}

// Several calls of the evaluator, with bad structures in the first, a middle and the last one: each label is that of its structure alone.
static void test_model_in_calls(void **state)
{
    (void)state;
    enum { N = 800 }; // 7200 atoms, four calls of 2048 at most
    static mlff_system *systems[N];
    static mlff_label labels[N];
    static const mlff_system *list[N];
    mlff_model *model = support_model(16, 1, "gaussian", "cosine", 0, 1);
    mlff_teacher *teacher;
    assert_ok(mlff_teacher_create_model(model, NULL, &teacher));
    for (int k = 0; k < N; k++) {
        list[k] = systems[k] = molecule("ethanol");
        for (int c = 0; c < 27; c++) systems[k]->positions[c] += 0.1 * (base_random_uniform(3, (uint64_t)k, (uint64_t)c) - 0.5);
        if (k == 0 || k == 333 || k == N - 1) memcpy(systems[k]->positions + 3, systems[k]->positions, 3 * sizeof(double));
    }
    for (int n = N; n > 100; n -= 350) { // the arrays of a large call serve smaller ones
        assert_ok(mlff_teacher_compute(teacher, list, n, labels));
        for (int k = 0; k < n; k++) {
            mlff_label alone;
            assert_ok(mlff_teacher_compute(teacher, list + k, 1, &alone));
            assert_int_equal(labels[k].status, k == 0 || k == 333 || k == N - 1 ? MLFF_ERR_VALUE : MLFF_OK);
            assert_int_equal(alone.status, labels[k].status);
            if (alone.status == MLFF_OK) {
                assert_true(fabs(alone.energy - labels[k].energy) < 1e-6); // eV; float32 sums in another order
                for (int c = 0; c < 27; c++) assert_true(fabs(alone.forces[c] - labels[k].forces[c]) < 1e-5);
            }
            mlff_label_clear(&alone);
            mlff_label_clear(&labels[k]);
        }
    }
    for (int k = 0; k < N; k++) mlff_system_destroy(systems[k]);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(model);
}

// ANI-2x: an ensemble's deviations, atom energies that add up.
static void test_ensemble(void **state)
{
    (void)state;
    const char *info_path = support_shared("data/ani2x/ani-2x_8x.info");
    if (!info_path) skip();
    mlff_model *model;
    mlff_teacher *teacher;
    mlff_teacher_info info;
    mlff_label label;
    assert_ok(mlff_model_import(info_path, NULL, &model));
    assert_ok(mlff_teacher_create_model(model, NULL, &teacher));
    mlff_teacher_info_get(teacher, &info);
    assert_int_equal(info.n_members, 8);
    mlff_system *ethanol = molecule("ethanol");
    assert_ok(mlff_system_perturb(ethanol, 300, 1));
    const mlff_system *const systems[] = {ethanol};
    assert_ok(mlff_teacher_compute(teacher, systems, 1, &label));
    double sum = 0;
    for (int i = 0; i < 9; i++) sum += label.atom_energies[i];
    printf("ANI-2x, ethanol: deviations %.4f eV, %.4f eV/Å\n", label.energy_deviation, label.force_deviation);
    assert_true(fabs(sum - label.energy) < 1e-3); // float32 sums of 4200 eV
    assert_true(label.energy_deviation > 1e-4 && label.energy_deviation < 1);
    assert_true(label.force_deviation > 1e-3 && label.force_deviation < 1);
    mlff_label_clear(&label);
    mlff_system_destroy(ethanol);
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(model);
}

// Energies and forces alone are those of labels; an ensemble's deviations too. A structure that fails fails the call, as a label does.
static void test_forces_alone(void **state)
{
    (void)state;
    mlff_model *model;
    mlff_teacher *teacher;
    mlff_system *systems[3] = {molecule("ethanol"), molecule("h2o"), molecule("methane")};
    mlff_label labels[3];
    double energies[3], forces[3 * 17], deviations[3 * 17], energy;
    assert_ok(mlff_model_create("ani", (mlff_setting[]){{"n_members", "3"}, {0}}, &model));
    assert_ok(mlff_teacher_create_model(model, NULL, &teacher));
    assert_ok(mlff_teacher_compute(teacher, (const mlff_system *const *)systems, 3, labels));
    for (int with = 0; with < 2; with++) {
        const double *f = forces, *d = deviations;
        assert_ok(teacher_forces(teacher, systems, 3, energies, forces, with ? deviations : NULL));
        for (int k = 0; k < 3; k++) {
            double largest = 0;
            assert_true(fabs(energies[k] - labels[k].energy) < 1e-4); // float32 sums of 4000 eV
            for (int a = 0; a < 3 * systems[k]->n_atoms; a++) assert_true(fabs(f[a] - labels[k].forces[a]) < 1e-4);
            for (int i = 0; i < systems[k]->n_atoms && with; i++)
                largest = fmax(largest, sqrt(pow(d[3 * i], 2) + pow(d[3 * i + 1], 2) + pow(d[3 * i + 2], 2)));
            if (with) assert_true(fabs(largest - labels[k].force_deviation) < 1e-4 * largest);
            f += 3 * systems[k]->n_atoms, d += 3 * systems[k]->n_atoms;
        }
    }
    systems[1]->species[0] = 92;
    assert_int_equal(mlff_teacher_forces(teacher, systems[1], &energy, forces), MLFF_ERR_ELEMENT);
    assert_non_null(strstr(mlff_last_error(), "does not know U"));
    for (int k = 0; k < 3; k++) {
        mlff_label_clear(&labels[k]);
        mlff_system_destroy(systems[k]);
    }
    mlff_teacher_destroy(teacher);
    mlff_model_destroy(model);
}

static mlff_status spring(void *context, const mlff_system *system, double *energy, double *forces)
{
    const int *fail_on = context;
    if (system->n_atoms == *fail_on) return mlff_fail(MLFF_ERR_CALLBACK, "not this one");
    *energy = system->n_atoms > 5 ? NAN : 1.5;
    for (int k = 0; k < 3 * system->n_atoms; k++) forces[k] = k;
    return MLFF_OK;
}

static void test_function(void **state)
{
    (void)state;
    int fail_on = 5;
    mlff_teacher *teacher;
    assert_ok(mlff_teacher_create("spring", spring, &fail_on, &teacher));
    mlff_system *systems[3] = {molecule("h2o"), molecule("methane"), molecule("ethanol")};
    const mlff_system *const list[3] = {systems[0], systems[1], systems[2]};
    mlff_label labels[3];
    assert_ok(mlff_teacher_compute(teacher, list, 3, labels));
    assert_true(labels[0].status == MLFF_OK && labels[0].energy == 1.5 && labels[0].forces[8] == 8);
    assert_true(labels[1].status == MLFF_ERR_CALLBACK && strcmp(labels[1].problem, "not this one") == 0);
    assert_true(labels[2].status == MLFF_ERR_VALUE && strstr(labels[2].problem, "not finite"));
    // A function's label that failed is the call's failure.
    double energy, forces[15];
    assert_int_equal(mlff_teacher_forces(teacher, systems[1], &energy, forces), MLFF_ERR_CALLBACK);
    assert_string_equal(mlff_last_error(), "not this one");
    assert_ok(mlff_teacher_forces(teacher, systems[0], &energy, forces));
    assert_true(energy == 1.5 && forces[8] == 8);
    for (int k = 0; k < 3; k++) {
        mlff_label_clear(&labels[k]);
        mlff_system_destroy(systems[k]);
    }
    mlff_teacher_destroy(teacher);
}

// The virial of `context`, and the energy 2.
static mlff_status pressed(void *context, const mlff_system *system, double *energy, double *forces, double *virial)
{
    *energy = 2;
    memset(forces, 0, 3 * (size_t)system->n_atoms * sizeof *forces);
    memcpy(virial, context, 9 * sizeof *virial);
    return MLFF_OK;
}

// Labels of systems with three periodic axes have the stress -W/V, xx yy zz yz xz xy; no other call asks for it.
static void test_function_virial(void **state)
{
    (void)state;
    int fail_on = -1;
    double virial[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, energy, forces[6];
    const double expected[6] = {1, 5, 9, 7, 5, 3};
    mlff_teacher *teacher;
    mlff_system *cell, *slab;
    mlff_teacher_info info;
    mlff_label labels[2];
    assert_ok(mlff_system_create(2, &cell));
    cell->species[0] = cell->species[1] = 29;
    cell->positions[3] = 2;
    cell->cell[0] = cell->cell[4] = cell->cell[8] = 4;
    for (int k = 0; k < 3; k++) cell->periodic[k] = 1;
    assert_ok(mlff_system_copy(cell, &slab));
    slab->periodic[2] = 0;
    assert_ok(mlff_teacher_create("spring", spring, &fail_on, &teacher));
    mlff_teacher_virial_set(teacher, pressed, virial);
    mlff_teacher_info_get(teacher, &info);
    assert_true(info.has_stress);
    const mlff_system *const list[2] = {cell, slab};
    assert_ok(mlff_teacher_compute(teacher, list, 2, labels));
    assert_true(labels[0].energy == 2 && labels[1].energy == 1.5 && isnan(labels[1].stress[0]));
    for (int k = 0; k < 6; k++) assert_float_equal(labels[0].stress[k], -expected[k] / 64, 1e-15);
    for (int k = 0; k < 2; k++) mlff_label_clear(&labels[k]);
    assert_ok(mlff_teacher_forces(teacher, cell, &energy, forces));
    assert_true(energy == 1.5);
    virial[4] = INFINITY;
    assert_ok(mlff_teacher_compute(teacher, list, 1, labels));
    assert_true(labels[0].status == MLFF_ERR_VALUE && strstr(labels[0].problem, "a stress that is not finite"));
    virial[0] = NAN; // this system has none
    assert_ok(mlff_teacher_compute(teacher, list, 1, labels));
    assert_true(labels[0].status == MLFF_OK && isnan(labels[0].stress[0]));
    mlff_label_clear(&labels[0]);
    mlff_system_destroy(cell);
    mlff_system_destroy(slab);
    mlff_teacher_destroy(teacher);
}

static void test_names(void **state)
{
    (void)state;
    mlff_teacher *teacher;
    assert_int_equal(mlff_teacher_open("xtb:gfn7", NULL, &teacher), MLFF_ERR_USAGE);
    assert_non_null(strstr(mlff_last_error(), "xtb:gfn2"));
    assert_int_equal(mlff_teacher_open("", NULL, &teacher), MLFF_ERR_USAGE);
    assert_int_equal(mlff_teacher_open("/nowhere/x.safetensors", NULL, &teacher), MLFF_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_xtb_forces),   cmocka_unit_test(test_xtb_aligned),
                                       cmocka_unit_test(test_xtb_energies), cmocka_unit_test(test_xtb_batch),
                                       cmocka_unit_test(test_xtb_crash),    cmocka_unit_test(test_xtb_no_process),
                                       cmocka_unit_test(test_xtb_timeout),  cmocka_unit_test(test_xtb_parent_killed),
                                       cmocka_unit_test(test_xtb_large),    cmocka_unit_test(test_xtb_periodic),
                                       cmocka_unit_test(test_model),        cmocka_unit_test(test_model_in_calls),
                                       cmocka_unit_test(test_ensemble),     cmocka_unit_test(test_forces_alone),
                                       cmocka_unit_test(test_function),     cmocka_unit_test(test_function_virial),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
