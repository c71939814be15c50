// SPDX-License-Identifier: MIT
// An evaluator on several devices against one on one device: a system divided among domains of the CPU in float64, where the results
// must agree to rounding, in any cell, with boxes smaller than the halo, and along a trajectory in which atoms change domains; the
// systems of a batch, handed out; failures of one domain. tests/kernels/test_parallel_cuda.c does the same on emulated GPUs.
// Tolerances: sums over neighbors and over domains run in another order, which costs float64 some 1e-15 of the terms' size.
#include "ani_support.h"
#include "atoms/atoms.h"
#include "gpu_support.h"
#include "model/evaluator/evaluator.h"
#include "parallel/decompose.h"

static mlff_evaluator *on_domains(const mlff_model *model, int n_domains, mlff_precision precision, double skin)
{
    mlff_device devices[MAX_DOMAINS] = {{MLFF_CPU, 0}};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    options.precision = precision;
    options.skin_angstrom = skin;
    options.n_threads = 1;
    options.devices = devices;
    options.n_devices = n_domains;
    mlff_evaluator *evaluator;
    assert_ok(mlff_evaluator_create(model, &options, &evaluator));
    return evaluator;
}

static mlff_system *built(const char *name, int n_atoms, double kelvin)
{
    mlff_system *system;
    assert_ok(mlff_system_build(name, n_atoms, 1, &system));
    assert_ok(mlff_system_perturb(system, kelvin, 3));
    return system;
}

static void compare_results(const char *what, const support_results *got, const support_results *expected, double relative)
{
    const size_t n = (size_t)expected->n_atoms, s = (size_t)expected->n_systems;
    const double size = support_largest(expected->r.forces, 3 * n), energy = fmax(support_atom_energy_size(expected), 1e-3);
    const double df = support_difference(got->r.forces, expected->r.forces, 3 * n);
    const double de = support_difference(got->r.energies, expected->r.energies, s);
    const double da = support_difference(got->r.atom_energies, expected->r.atom_energies, n);
    const double dv = support_difference(got->r.virials, expected->r.virials, 9 * s);
    const double virial = fmax(support_largest(expected->r.virials, 9 * s), size);
    if (df > relative * size || de > relative * energy || da > relative * energy || dv > relative * virial)
        fail_msg("%s: forces off by %.2e of %.2e, energies by %.2e of %.2e, atom energies by %.2e, virials by %.2e of %.2e", what,
                 df, size, de, energy, da, dv, virial);
    for (size_t k = 0; k < 6 * s; k++) {
        const double a = got->r.stresses[k], b = expected->r.stresses[k];
        if (!(isnan(a) && isnan(b)) && !(fabs(a - b) <= relative * fmax(1, support_largest(expected->r.virials, 9 * s))))
            fail_msg("%s: stress %zu is %.12g, expected %.12g", what, k, a, b);
    }
}

static void check_system(const char *name, const mlff_model *model, const mlff_system *system, mlff_precision precision,
                         double relative)
{
    static const int counts[] = {2, 3, 8};
    mlff_evaluator *one = support_evaluator_on(model, precision, NULL, 1, NULL);
    support_results expected = support_compute_system(one, system);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        char what[128];
        mlff_evaluator *several = on_domains(model, counts[k], precision, 0.5);
        support_results got = support_compute_system(several, system);
        snprintf(what, sizeof what, "%s, %d domains", name, counts[k]);
        compare_results(what, &got, &expected, relative);
        support_results again = support_compute_system(several, system);
        assert_memory_equal(again.r.forces, got.r.forces, 3 * (size_t)got.n_atoms * sizeof(double));
        support_results_free(&again);
        support_results_free(&got);
        mlff_evaluator_destroy(several);
    }
    support_results_free(&expected);
    mlff_evaluator_destroy(one);
}

static void test_one_system_on_several_domains(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 3, "gaussian", "cosine", 0, 1);
    const struct {
        const char *name;
        int n_atoms;
    } systems[] = {{"silicon", 64}, {"silicon", 8}, {"water", 96}, {"aspirin", 0}};
    for (size_t k = 0; k < sizeof systems / sizeof *systems; k++) {
        mlff_system *system = built(systems[k].name, systems[k].n_atoms, 600);
        check_system(systems[k].name, painn, system, MLFF_FLOAT64, 2e-13);
        if (k == 0) check_system(systems[k].name, painn, system, MLFF_FLOAT32, 2e-5);
        mlff_system_destroy(system);
    }
    for (int periodic = 0; periodic < 2; periodic++) {
        mlff_system *system = support_random_system(40, periodic, 1.2, 5); // the periodic cell is skewed, as wide as the halo
        check_system(periodic ? "skewed" : "free", painn, system, MLFF_FLOAT64, 2e-13);
        system->periodic[0] = 0; // a slab, or still free
        check_system(periodic ? "slab" : "free", painn, system, MLFF_FLOAT64, 2e-13);
        system->positions[3] += 3 * system->cell[3] - 2 * system->cell[6]; // an atom far outside of the cell
        mlff_system_destroy(system);
    }
    mlff_model_destroy(painn);
}

// An atom so little outside of its cell that its wrapped fraction rounds to 1.
static void test_atoms_on_the_edge_of_the_cell(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 2, "gaussian", "cosine", 0, 1);
    mlff_system *system = built("silicon", 216, 300);
    for (int c = 0; c < 3; c++) {
        system->positions[c] = -1e-17;
        check_system("edge", painn, system, MLFF_FLOAT64, 2e-13);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(painn);
}

// Calls in which atoms stay and their elements change, as in an exchange of two: each as on one device.
static void test_elements_that_change(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=16; n_layers=2; cutoff=4; elements=H,C,O; seed=5"));
    mlff_system *system = built("silicon", 216, 300);
    mlff_evaluator *one = support_evaluator_on(model, MLFF_FLOAT64, NULL, 1, NULL),
                   *several = on_domains(model, 4, MLFF_FLOAT64, 1);
    for (int call = 0; call < 4; call++) {
        static const int elements[] = {6, 8, 1};
        for (int i = 0; i < system->n_atoms; i++) system->species[i] = call % 2 ? elements[i % 3] : 6;
        if (call == 3) system->species[0] = 8; // of the same composition as call 1
        if (call == 3) system->species[1] = 6;
        support_results expected = support_compute_system(one, system), got = support_compute_system(several, system);
        compare_results("elements that change", &got, &expected, 1e-12);
        support_results_free(&expected);
        support_results_free(&got);
    }
    mlff_evaluator_destroy(one);
    mlff_evaluator_destroy(several);
    mlff_system_destroy(system);
    mlff_model_destroy(model);
}

static void test_ensembles_of_networks(void **state)
{
    (void)state;
    mlff_model *ani = ani_shaped(&ani_small_2x, 5);
    mlff_system *system = ani_random_system(60, 7, 1, 1.2, 61);
    check_system("ani", ani, system, MLFF_FLOAT64, 2e-13);
    mlff_evaluator *evaluators[2] = {support_evaluator_on(ani, MLFF_FLOAT64, NULL, 1, "0,2"), NULL};
    mlff_evaluator_options options = mlff_evaluator_options_default();
    mlff_device devices[2] = {{MLFF_CPU, 0}, {MLFF_CPU, 0}};
    options.precision = MLFF_FLOAT64;
    options.devices = devices;
    options.n_devices = 2;
    options.members = "0,2";
    assert_ok(mlff_evaluator_create(ani, &options, &evaluators[1]));
    double energies[2][2], deviations[2], *forces[2], *force_deviations[2];
    for (int k = 0; k < 2; k++) {
        int32_t first_atom[2];
        mlff_batch batch;
        double energy;
        forces[k] = calloc(6 * (size_t)system->n_atoms, sizeof(double));
        force_deviations[k] = calloc(3 * (size_t)system->n_atoms, sizeof(double));
        mlff_batch_from_system(system, first_atom, &batch);
        assert_ok(mlff_evaluator_compute(evaluators[k], &batch,
                                         &(mlff_results){.energies = &energy,
                                                         .member_energies = energies[k],
                                                         .member_forces = forces[k],
                                                         .energy_deviations = &deviations[k],
                                                         .force_deviations = force_deviations[k]}));
    }
    // 1e-12 of some 1e4 eV of the atoms' own energies
    assert_true(support_difference(energies[0], energies[1], 2) < 1e-8);
    assert_true(support_difference(forces[0], forces[1], 6 * (size_t)system->n_atoms) < 1e-11);
    assert_true(support_difference(force_deviations[0], force_deviations[1], 3 * (size_t)system->n_atoms) < 1e-11);
    assert_true(fabs(energies[0][0] - energies[0][1]) > 1e-4);
    for (int k = 0; k < 2; k++) {
        free(forces[k]);
        free(force_deviations[k]);
        mlff_evaluator_destroy(evaluators[k]);
    }
    mlff_system_destroy(system);
    mlff_model_destroy(ani);
}

// A model that cannot be divided: the systems of a batch are handed out, a single one runs on one device. Each system's results are the
// same computation as alone.
static void test_estimated_errors(void **state)
{
    (void)state;
    mlff_model *model;
    assert_ok(support_create(&model, "orb-v3-direct", "n_layers=2; hidden=64; max_neighbors=6; seed=9"));
    mlff_system *systems[3] = {support_random_system(5, 1, 0.8, 3), support_random_system(7, 0, 0.8, 4),
                               support_random_system(4, 1, 0.8, 5)};
    joined all = join(systems, 3);
    mlff_evaluator *one = support_evaluator_on(model, MLFF_FLOAT64, NULL, 1, NULL),
                   *several = on_domains(model, 2, MLFF_FLOAT64, 0);
    for (int together = 0; together < 2; together++) {
        int32_t first_atom[2];
        mlff_batch single;
        mlff_batch_from_system(systems[1], first_atom, &single);
        const mlff_batch *batch = together ? &all.batch : &single;
        double energies[2][3], errors[2][16];
        for (int k = 0; k < 2; k++)
            assert_ok(mlff_evaluator_compute(k ? several : one, batch,
                                             &(mlff_results){.energies = energies[k], .force_errors = errors[k]}));
        assert_memory_equal(energies[0], energies[1], sizeof(double) * (size_t)batch->n_systems);
        assert_memory_equal(errors[0], errors[1], sizeof(double) * (size_t)batch->first_atom[batch->n_systems]);
        assert_true(errors[0][0] > 0 && errors[0][0] != errors[0][1]);
    }
    mlff_evaluator_destroy(one);
    mlff_evaluator_destroy(several);
    unjoin(&all);
    for (int k = 0; k < 3; k++) mlff_system_destroy(systems[k]);
    mlff_model_destroy(model);
}

// Without the exchange, or with ghosts too few, energies are wrong: that the comparison above would see it.
static void test_the_exchange_matters(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 3, "gaussian", "cosine", 0, 1);
    mlff_system *system = built("silicon", 64, 600);
    mlff_evaluator *one = support_evaluator_on(painn, MLFF_FLOAT64, NULL, 1, NULL);
    support_results whole = support_compute_system(one, system);
    unsigned char *owned = calloc((size_t)system->n_atoms, 1);
    memset(owned, 1, (size_t)system->n_atoms / 2);
    int32_t first_atom[2];
    mlff_batch batch;
    mlff_batch_from_system(system, first_atom, &batch);
    batch.owned = owned;
    support_results half = support_compute(one, &batch);
    assert_true(support_difference(whole.r.atom_energies, half.r.atom_energies, (size_t)system->n_atoms / 2) < 1e-12);
    assert_true(support_difference(whole.r.forces, half.r.forces, 3 * (size_t)system->n_atoms) > 1e-6);
    free(owned);
    support_results_free(&whole);
    support_results_free(&half);
    mlff_evaluator_destroy(one);
    mlff_system_destroy(system);
    mlff_model_destroy(painn);
}

typedef struct trajectory {
    mlff_system *system;
    double *forces, energy, drift, pressure;
} trajectory;

// Who integrates: the host, or the domains' threads, which mlff_dynamics_create_on chooses on GPUs alone; in a run of all steps, or
// in one for each.
typedef enum integrated { ON_HOST, IN_DOMAINS, IN_DOMAINS_STEP_BY_STEP } integrated;

static mlff_dynamics *start_dynamics(mlff_evaluator *evaluator, const mlff_dynamics_options *options, mlff_system *system,
                                     integrated where)
{
    mlff_dynamics *dynamics;
    dynamics_resident resident;
    assert_ok(mlff_dynamics_create_on(evaluator, options, system, NULL, NULL, &dynamics));
    if (where == ON_HOST) return dynamics;
    assert_ok(evaluator->interface->dynamics_create(evaluator->self, &dynamics, 1, &resident));
    dynamics_set_resident(dynamics, &resident);
    return dynamics;
}

// Hot dynamics: atoms change domains, and lists are made again. Along a ramp, so that baths depend on the step.
// Few neighbors: what is tested are the moves of atoms, in many steps.
static mlff_model *short_range_model(void)
{
    mlff_model *model;
    assert_ok(support_create(&model, "painn", "n_features=8; n_layers=2; cutoff=3.0; seed=1"));
    return model;
}

static trajectory run_dynamics(mlff_evaluator *evaluator, mlff_ensemble ensemble, int n_steps, integrated where)
{
    mlff_system *system = built("water", 96, 300);
    mlff_dynamics_options options = mlff_dynamics_options_default();
    mlff_dynamics_state first, last;
    double times[200] = {0};
    options.ensemble = ensemble;
    options.temperature_kelvin = 800;
    options.ramp_end_kelvin = 700;
    options.ramp_steps = ensemble == MLFF_NVE ? 0 : 100;
    options.barostat_fs = 100; // a cell that shrinks by several percent
    options.pressure = 0.2;
    options.anisotropic = ensemble == MLFF_MTK;
    assert_ok(mlff_system_thermalize(system, 800, 1));
    assert_ok(mlff_system_add_fixed(system));
    system->fixed[5] = ensemble < MLFF_SCR;
    mlff_dynamics *dynamics = start_dynamics(evaluator, &options, system, where);
    assert_ok(mlff_dynamics_state_get(dynamics, &first));
    for (int k = 0; k < n_steps; k += where == IN_DOMAINS_STEP_BY_STEP ? 1 : n_steps)
        assert_ok(mlff_dynamics_run(dynamics, where == IN_DOMAINS_STEP_BY_STEP ? 1 : n_steps, times + k));
    assert_ok(mlff_dynamics_state_get(dynamics, &last));
    assert_int_equal(last.step, n_steps);
    for (int k = 0; k < n_steps; k++) assert_true(times[k] > 0);
    trajectory t = {system, calloc(3 * (size_t)system->n_atoms, sizeof(double)), last.potential_energy,
                    last.conserved_energy - first.conserved_energy, last.pressure};
    memcpy(t.forces, last.forces, 3 * (size_t)system->n_atoms * sizeof(double));
    mlff_dynamics_destroy(dynamics);
    return t;
}

static void end_trajectory(trajectory *t)
{
    free(t->forces);
    mlff_system_destroy(t->system);
}

static void test_dynamics(void **state)
{
    (void)state;
    static const mlff_ensemble ensembles[] = {MLFF_NVE, MLFF_LANGEVIN, MLFF_BUSSI, MLFF_NOSE_HOOVER, MLFF_SCR, MLFF_MTK};
    mlff_model *painn = short_range_model();
    for (int k = 0; k < 6; k++) {
        mlff_evaluator *one = support_evaluator_on(painn, MLFF_FLOAT64, NULL, 1, NULL),
                       *several = on_domains(painn, 3, MLFF_FLOAT64, 0.5);
        // Differences of rounding grow by chaos, some e-fold each 8 fs: short for positions, long for atoms that change domains.
        trajectory a = run_dynamics(one, ensembles[k], 40, ON_HOST), b = run_dynamics(several, ensembles[k], 40, IN_DOMAINS);
        assert_true(support_difference(a.system->positions, b.system->positions, 3 * 96) < 1e-11);
        assert_true(support_difference(a.system->velocities, b.system->velocities, 3 * 96) < 1e-11);
        assert_true(fabs(a.energy - b.energy) < 1e-10 && fabs(a.drift - b.drift) < 1e-10);
        assert_true(support_difference(a.system->cell, b.system->cell, 9) < 1e-11);
        assert_true(fabs(a.pressure - b.pressure) < 1e-11 || ensembles[k] < MLFF_SCR);
        trajectory c = run_dynamics(several, ensembles[k], SUPPORT_CASES(160), k == 1 ? ON_HOST : IN_DOMAINS);
        support_results there = support_compute_system(one, c.system);
        assert_true(support_difference(there.r.forces, c.forces, 3 * 96) < 2e-13 * support_largest(c.forces, 3 * 96));
        support_results_free(&there);
        mlff_evaluator_info info;
        mlff_evaluator_info_get(several, &info);
        assert_true(SUPPORT_SANITIZED || info.n_rebuilds > 2); // the test would pass without atoms that change domains
        mlff_system *begun = built("water", 96, 300);
        assert_true(SUPPORT_SANITIZED || (fabs(c.system->cell[8] - begun->cell[8]) > 0.2) == (ensembles[k] >= MLFF_SCR));
        mlff_system_destroy(begun);
        end_trajectory(&a);
        end_trajectory(&b);
        end_trajectory(&c);
        mlff_evaluator_destroy(one);
        mlff_evaluator_destroy(several);
    }
    mlff_model_destroy(painn);
}

// Box of a domain, in fractions.
static void domain_box(const decomposition *d, int index, double low[3], double high[3])
{
    const int *n = d->grid, z = index % n[2], y = index / n[2] % n[1], x = index / n[2] / n[1];
    const double *planes[3] = {d->planes[0] + x, d->planes[1] + x * (n[1] + 1) + y,
                               d->planes[2] + (x * n[1] + y) * (n[2] + 1) + z};
    for (int k = 0; k < 3; k++) low[k] = planes[k][0], high[k] = planes[k][1];
}

// An atom's fractions within the cell along divided periodic axes, and the cells taken off for that.
static void wrap_into_cell(const decomposition *d, int i, double fraction[3], int wrap[3])
{
    for (int k = 0; k < 3; k++) {
        const double f = neighbors_fraction(&d->axes, d->positions + 3 * i, k);
        wrap[k] = d->axes.periodic[k] && d->divided[k] ? (int)floor(f) : 0;
        fraction[k] = f - wrap[k];
    }
}

static int owner_of(const decomposition *d, int i)
{
    int owner = -1;
    for (int k = 0; k < d->n_domains; k++)
        for (int r = 0; r < d->domains[k].n_owned; r++) {
            if (d->domains[k].atom[r] != i) continue;
            assert_int_equal(owner, -1); // one alone
            owner = k;
        }
    assert_true(owner >= 0);
    return owner;
}

// Ghosts of a domain among all images of atom i within `IMAGES` cells; each is to be in its list.
enum { IMAGES = 3 };
static int count_ghosts(const decomposition *d, int index, int i)
{
    const domain_atoms *atoms = &d->domains[index];
    double low[3], high[3], fraction[3];
    int n = 0, wrap[3];
    const int owner = owner_of(d, i);
    domain_box(d, index, low, high);
    wrap_into_cell(d, i, fraction, wrap);
    for (int image = 0; image < (2 * IMAGES + 1) * (2 * IMAGES + 1) * (2 * IMAGES + 1); image++) {
        const int side = 2 * IMAGES + 1,
                  cells[3] = {image % side - IMAGES, image / side % side - IMAGES, image / side / side - IMAGES};
        bool within = true, found = false;
        for (int k = 0; k < 3; k++) {
            const double f = fraction[k] + cells[k], reach = d->reach / d->axes.height[k];
            if (cells[k] != 0 && !(d->divided[k] && d->axes.periodic[k])) within = false;
            if (d->divided[k] && !(f >= low[k] - reach && f <= high[k] + reach)) within = false;
        }
        if (!within || (owner == index && !cells[0] && !cells[1] && !cells[2])) continue;
        for (int g = atoms->n_owned; g < atoms->n_local && !found; g++) {
            found = atoms->atom[g] == i;
            for (int k = 0; k < 3; k++) found = found && atoms->shift[3 * g + k] == cells[k] - wrap[k];
        }
        if (!found) fail_msg("domain %d lacks the image %d %d %d of atom %d", index, cells[0], cells[1], cells[2], i);
        n++;
    }
    return n;
}

// Own rows in the order of the system; ghosts are copies of the rows that they name; and each own row's copies are all ghosts that name it, in the
// order of rows, domains and ghosts.
static void check_tables(const decomposition *d)
{
    for (int k = 0; k < d->n_domains; k++) {
        const domain_atoms *a = &d->domains[k];
        int n_copies = 0, last = -1;
        for (int r = 0; r < a->n_owned; r++) assert_true(r == 0 || a->atom[r] > a->atom[r - 1]);
        for (int g = 0; g < a->n_local - a->n_owned; g++) {
            const domain_atoms *source = &d->domains[a->source[g]];
            assert_in_range(a->source_row[g], 0, source->n_owned - 1);
            assert_int_equal(source->atom[a->source_row[g]], a->atom[a->n_owned + g]);
            assert_true(g == 0 || a->atom[a->n_owned + g] >= a->atom[a->n_owned + g - 1]);
        }
        for (int s = 0; s < a->n_shared; s++) {
            assert_true(a->shared[s] > last && a->holder_first[s + 1] > a->holder_first[s]);
            last = a->shared[s];
            for (int j = a->holder_first[s]; j < a->holder_first[s + 1]; j++, n_copies++) {
                const domain_atoms *holder = &d->domains[a->holder[j]];
                const int g = a->holder_row[j] - holder->n_owned;
                assert_true(g >= 0 && holder->source[g] == k && holder->source_row[g] == last);
                assert_true(j == a->holder_first[s] || a->holder[j] > a->holder[j - 1] ||
                            (a->holder[j] == a->holder[j - 1] && a->holder_row[j] > a->holder_row[j - 1]));
            }
        }
        for (int other = 0; other < d->n_domains; other++)
            for (int g = 0; g < d->domains[other].n_local - d->domains[other].n_owned; g++)
                n_copies -= d->domains[other].source[g] == k;
        assert_int_equal(n_copies, 0);
    }
}

// Ghosts of all domains against every image of every atom: cells smaller and larger than the reach, skewed, slabs, free.
static void test_ghosts(void **state)
{
    (void)state;
    int n_inside = 0;
    for (int kind = 0; kind < 12; kind++) {
        const int n_domains = (int[]){2, 6, 8}[kind % 3], n_atoms = kind < 8 ? 400 : 20;
        mlff_system *system = support_random_system(n_atoms, kind % 4 != 3, 1.0, (uint64_t)kind + 1);
        int32_t first_atom[2];
        mlff_batch batch;
        decomposition *d;
        if (kind % 4 == 2) system->periodic[kind % 3] = 0;
        mlff_batch_from_system(system, first_atom, &batch);
        assert_ok(decomposition_create(n_domains, (double[]){1, 3, 6}[kind / 4], 0.3, &d));
        assert_ok(decomposition_make(d, 1, &batch));
        check_tables(d);
        int n_ghosts = 0, expected = 0;
        for (int k = 0; k < n_domains; k++) n_ghosts += d->domains[k].n_local - d->domains[k].n_owned;
        for (int i = 0; i < n_atoms; i++) {
            int of_atom = 0;
            for (int k = 0; k < n_domains; k++) of_atom += count_ghosts(d, k, i);
            n_inside += of_atom == 0;
            expected += of_atom;
        }
        assert_int_equal(n_ghosts, expected);
        decomposition_destroy(d);
        mlff_system_destroy(system);
    }
    assert_true(n_inside > 100); // atoms that are ghosts of no domain
}

static void assert_same_rows(const domain_atoms *a, const domain_atoms *b)
{
    const size_t local = (size_t)a->n_local, ghosts = local - (size_t)a->n_owned, shared = (size_t)a->n_shared,
                 copies = (size_t)a->holder_first[shared], size = sizeof(int32_t);
    assert_true(a->n_owned == b->n_owned && a->n_local == b->n_local && a->n_shared == b->n_shared);
    assert_memory_equal(a->atom, b->atom, local * size);
    assert_memory_equal(a->shift, b->shift, 3 * local * size);
    assert_memory_equal(a->source, b->source, ghosts * size);
    assert_memory_equal(a->source_row, b->source_row, ghosts * size);
    assert_memory_equal(a->shared, b->shared, shared * size);
    assert_memory_equal(a->holder_first, b->holder_first, (shared + 1) * size);
    assert_memory_equal(a->holder, b->holder, copies * size);
    assert_memory_equal(a->holder_row, b->holder_row, copies * size);
}

// Lists by one thread and by several, first and after the atoms have moved; the last system has domains without atoms.
static void test_shares(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        const int n_domains = (int[]){4, 8, 6}[kind], n_atoms = 30000;
        mlff_system *system;
        int32_t first_atom[2];
        mlff_batch batch;
        assert_ok(mlff_system_create(n_atoms, &system));
        for (int c = 0; c < 3 && kind < 2; c++) system->cell[4 * c] = 60, system->periodic[c] = 1;
        for (int i = 0; i < 3 * n_atoms; i++) system->positions[i] = 60 * base_random_uniform(6, (uint64_t)kind, (uint64_t)i);
        for (int i = 0; i < n_atoms && kind == 2; i++)
            system->positions[3 * i + 2] = i < n_atoms - 1 ? 0 : 900; // in a plane, but for one
        for (int i = 0; i < n_atoms; i++) system->species[i] = 1;
        mlff_batch_from_system(system, first_atom, &batch);
        decomposition *by[3];
        for (int t = 0; t < 3; t++) assert_ok(decomposition_create(n_domains, 4, 0.3, &by[t]));
        for (int time = 0; time < 3; time++) {
            for (int t = 0; t < 3; t++) assert_ok(decomposition_make(by[t], (int[]){1, 2, 7}[t], &batch));
            check_tables(by[0]);
            for (int t = 1; t < 3; t++)
                for (int k = 0; k < n_domains; k++) assert_same_rows(&by[0]->domains[k], &by[t]->domains[k]);
            for (int i = 0; i < 3 * n_atoms; i++) system->positions[i] += 3 * base_random_uniform(7, (uint64_t)time, (uint64_t)i);
        }
        // Of two atoms without meaning the first is named, whichever thread finds it.
        system->positions[3 * 17001] = NAN;
        system->positions[3 * 29000] = NAN;
        for (int t = 0; t < 3; t++) {
            assert_int_equal(decomposition_make(by[t], (int[]){1, 2, 7}[t], &batch), MLFF_ERR_VALUE);
            assert_non_null(strstr(mlff_last_error(), "atom 17001 has a coordinate that is not finite"));
            decomposition_destroy(by[t]);
        }
        mlff_system_destroy(system);
    }
}

// The same bits again, however the steps are divided into runs.
static void test_dynamics_has_the_same_bits(void **state)
{
    (void)state;
    mlff_model *painn = short_range_model();
    static const mlff_ensemble ensembles[] = {MLFF_NOSE_HOOVER, MLFF_SCR, MLFF_MTK};
    for (int which = 0; which < 3; which++) {
        trajectory seen[3];
        for (int k = 0; k < 3; k++) {
            mlff_evaluator *several = on_domains(painn, 3, MLFF_FLOAT64, 0.2);
            seen[k] = run_dynamics(several, ensembles[which], SUPPORT_CASES(60), k == 1 ? IN_DOMAINS_STEP_BY_STEP : IN_DOMAINS);
            assert_memory_equal(seen[k].system->positions, seen[0].system->positions, 3 * 96 * sizeof(double));
            assert_memory_equal(seen[k].system->velocities, seen[0].system->velocities, 3 * 96 * sizeof(double));
            assert_memory_equal(seen[k].system->cell, seen[0].system->cell, 9 * sizeof(double));
            assert_memory_equal(seen[k].forces, seen[0].forces, 3 * 96 * sizeof(double));
            assert_true(seen[k].drift == seen[0].drift);
            mlff_evaluator_destroy(several);
        }
        for (int k = 0; k < 3; k++) end_trajectory(&seen[k]);
    }
    mlff_model_destroy(painn);
}

// Between two runs the evaluator computes other systems, and makes the steps of another simulation.
static void test_other_calls_between_runs(void **state)
{
    (void)state;
    mlff_model *painn = short_range_model();
    mlff_dynamics_options options = mlff_dynamics_options_default();
    double *alone = calloc(3 * 96, sizeof *alone);
    for (int k = 0; k < 4; k++) {
        mlff_evaluator *several = on_domains(painn, 3, MLFF_FLOAT64, 0.5);
        mlff_system *system = built("water", 96, 300), *other = built("silicon", 216, 300), *two[] = {other, system};
        assert_ok(mlff_system_thermalize(system, 800, 1));
        assert_ok(mlff_system_add_masses(other));
        assert_ok(mlff_system_add_velocities(other));
        joined both = join(two, 2);
        mlff_dynamics *dynamics = start_dynamics(several, &options, system, IN_DOMAINS), *second = NULL;
        if (k == 3) second = start_dynamics(several, &options, other, IN_DOMAINS);
        for (int run = 0; run < 3; run++) {
            mlff_domain_info domains[3];
            assert_ok(mlff_dynamics_run(dynamics, 5, NULL));
            assert_int_equal(mlff_evaluator_domains(several, domains, 3), 3);
            assert_int_equal(domains[0].n_owned + domains[1].n_owned + domains[2].n_owned, 96);
            support_results r = {0};
            if (k == 1) r = support_compute_system(several, other);
            if (k == 2) r = support_compute(several, &both.batch);
            if (k == 3) assert_ok(mlff_dynamics_run(second, 5, NULL));
            support_results_free(&r);
        }
        if (k == 0) memcpy(alone, system->positions, 3 * 96 * sizeof *alone);
        assert_true(support_difference(alone, system->positions, 3 * 96) < 1e-11);
        mlff_dynamics_destroy(dynamics);
        mlff_dynamics_destroy(second);
        mlff_evaluator_destroy(several);
        unjoin(&both);
        mlff_system_destroy(system);
        mlff_system_destroy(other);
    }
    free(alone);
    mlff_model_destroy(painn);
}

// Two atoms among four domains: what Langevin's bath gave an atom stays counted when its domain is left without atoms.
static void test_heat_of_domains_that_are_left(void **state)
{
    (void)state;
    mlff_model *painn = short_range_model();
    mlff_dynamics_options options = mlff_dynamics_options_default();
    options.ensemble = MLFF_LANGEVIN;
    options.temperature_kelvin = 3000;
    options.friction_per_fs = 0.05;
    double conserved[2];
    for (int k = 0; k < 2; k++) {
        mlff_system *system = support_random_system(2, 1, 1.2, 5);
        mlff_dynamics_state last;
        assert_ok(mlff_system_add_masses(system));
        system->masses[0] = system->masses[1] = 1;
        assert_ok(mlff_system_thermalize(system, 3000, 1));
        mlff_evaluator *evaluator =
            k == 0 ? support_evaluator_on(painn, MLFF_FLOAT64, NULL, 1, NULL) : on_domains(painn, 4, MLFF_FLOAT64, 0.2);
        mlff_dynamics *dynamics = start_dynamics(evaluator, &options, system, k == 0 ? ON_HOST : IN_DOMAINS);
        assert_ok(mlff_dynamics_run(dynamics, 300, NULL));
        assert_ok(mlff_dynamics_state_get(dynamics, &last));
        conserved[k] = last.conserved_energy;
        mlff_dynamics_destroy(dynamics);
        mlff_evaluator_destroy(evaluator);
        mlff_system_destroy(system);
    }
    assert_true(fabs(conserved[0] - conserved[1]) < 1e-6);
    mlff_model_destroy(painn);
}

// A step that fails in one domain ends the run of all. Atoms, forces and energy are those of the last good step, and the simulation can
// go on from there.
static void test_failing_steps(void **state)
{
    (void)state;
    mlff_model *painn = short_range_model();
    mlff_dynamics_options options = mlff_dynamics_options_default();
    for (int k = 0; k < 2;
         k++) { // positions beyond all, of any domain; an atom that is moved onto another, into a new decomposition
        mlff_system *system = built("silicon", 64, 300), *before;
        mlff_evaluator *several = on_domains(painn, 3, MLFF_FLOAT64, 0.5);
        mlff_dynamics_state good, after;
        assert_ok(mlff_system_add_velocities(system));
        assert_ok(mlff_system_add_masses(system));
        assert_ok(mlff_system_add_fixed(system));
        system->fixed[0] = 1;
        system->masses[1] = 1e30; // which no force moves
        for (int c = 0; c < 3; c++)
            system->velocities[3 + c] = (system->positions[c] - system->positions[3 + c]) / (2 * options.timestep_fs);
        mlff_dynamics *dynamics = start_dynamics(several, &options, system, IN_DOMAINS);
        assert_ok(mlff_dynamics_run(dynamics, 1, NULL));
        assert_ok(mlff_dynamics_state_get(dynamics, &good));
        assert_ok(mlff_system_copy(system, &before));
        double *forces = calloc(3 * 64, sizeof *forces);
        memcpy(forces, good.forces, 3 * 64 * sizeof *forces);
        if (k == 0) dynamics->options.timestep_fs = 1e12, dynamics->placed = false; // options are taken when atoms are put
        assert_int_equal(mlff_dynamics_run(dynamics, 5, NULL), MLFF_ERR_UNSTABLE);
        assert_null(strstr(mlff_last_error(), "another domain"));
        assert_non_null(strstr(mlff_last_error(), k == 0 ? "step 2: the position of atom " : "step 2: "));
        assert_ok(mlff_dynamics_state_get(dynamics, &after));
        assert_memory_equal(before->positions, system->positions, 3 * 64 * sizeof(double));
        assert_memory_equal(before->velocities, system->velocities, 3 * 64 * sizeof(double));
        assert_memory_equal(after.forces, forces, 3 * 64 * sizeof(double));
        assert_true(after.step == good.step && after.potential_energy == good.potential_energy);
        for (int c = 0; c < 3; c++) system->velocities[3 + c] = 0;
        dynamics->options.timestep_fs = 0.5, dynamics->placed = false;
        assert_ok(mlff_dynamics_run(dynamics, 5, NULL));
        free(forces);
        mlff_system_destroy(before);
        mlff_dynamics_destroy(dynamics);
        mlff_evaluator_destroy(several);
        mlff_system_destroy(system);
    }
    mlff_model_destroy(painn);
}

static void test_batches_are_handed_out(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 2, "gaussian", "cosine", 0, 1);
    mlff_system *systems[5];
    enum { N = 5, DOMAINS = 3 };
    for (int k = 0; k < N; k++) systems[k] = support_random_system(5 + 7 * k, k % 2, 1.0, 20 + (uint64_t)k);
    joined all = join(systems, N);
    mlff_batch batch = all.batch;
    for (int n = 1; n <= N; n++) {
        batch.n_systems = n;
        mlff_evaluator *one = support_evaluator_on(painn, MLFF_FLOAT32, NULL, 1, NULL),
                       *several = on_domains(painn, DOMAINS, MLFF_FLOAT32, 0.5);
        support_results expected = support_compute(one, &batch), got = support_compute(several, &batch);
        if (n > 1) { // each system is computed as on one device: the same bits
            assert_memory_equal(got.r.forces, expected.r.forces, 3 * (size_t)batch.first_atom[n] * sizeof(double));
            assert_memory_equal(got.r.energies, expected.r.energies, (size_t)n * sizeof(double));
        }
        support_results_free(&expected);
        support_results_free(&got);
        mlff_evaluator_destroy(one);
        mlff_evaluator_destroy(several);
    }
    for (int k = 0; k < N; k++) mlff_system_destroy(systems[k]);
    unjoin(&all);
    mlff_model_destroy(painn);
}

// Domains without atoms, and few atoms.
static void test_domains_without_atoms(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 3, "gaussian", "cosine", 0, 1);
    for (int n = 1; n <= 3; n++) {
        mlff_system *system = support_random_system(n, 0, 1.0, 3);
        check_system("few atoms", painn, system, MLFF_FLOAT64, 2e-13);
        mlff_system_destroy(system);
    }
    mlff_model_destroy(painn);
}

// Warnings and failures of a batch that is handed out: each warning once, and systems by their numbers in the batch.
static void count_warning(void *context, const char *text)
{
    int *n = context;
    assert_non_null(strstr(text, "system 1 "));
    ++*n;
}

static void test_systems_by_their_numbers(void **state)
{
    (void)state;
    enum { N = 4 };
    mlff_model *painn = support_model(16, 2, "gaussian", "cosine", 0, 1);
    mlff_system *systems[N];
    for (int k = 0; k < N; k++) systems[k] = support_random_system(10, 0, 1.0, 20 + (uint64_t)k);
    joined all = join(systems, N);
    double charges[N] = {0, 1, 1, 0}, energies[N];
    int n_warnings = 0;
    mlff_evaluator *several = on_domains(painn, 2, MLFF_FLOAT64, 0.5);
    all.batch.charges = charges;
    mlff_warning_handler_set(count_warning, &n_warnings);
    for (int k = 0; k < 2; k++) assert_ok(mlff_evaluator_compute(several, &all.batch, &(mlff_results){.energies = energies}));
    mlff_warning_handler_set(NULL, NULL);
    assert_int_equal(n_warnings, 1);
    memcpy(all.positions + 3 * 31, all.positions + 3 * 30, 3 * sizeof(double));
    assert_int_equal(mlff_evaluator_compute(several, &all.batch, &(mlff_results){.energies = energies}), MLFF_ERR_VALUE);
    assert_string_equal(mlff_last_error(),
                        "of systems 2 to 3, numbered from 0 on: atoms 0 and 1 of system 1 are on one point; move one of them");
    mlff_evaluator_destroy(several);
    for (int k = 0; k < N; k++) mlff_system_destroy(systems[k]);
    unjoin(&all);
    mlff_model_destroy(painn);
}

static int64_t pairs_of(const mlff_evaluator *evaluator)
{
    mlff_evaluator_info info;
    mlff_evaluator_info_get(evaluator, &info);
    return info.n_pairs;
}

// Devices that had atoms in an earlier call, and have none in this one, add nothing to what is told of it.
static void test_devices_that_have_become_idle(void **state)
{
    (void)state;
    enum { N = 4 };
    mlff_model *painn = support_model(16, 2, "gaussian", "cosine", 0, 1);
    mlff_system *systems[N], *crystal = built("silicon", 216, 300);
    for (int k = 0; k < N; k++) systems[k] = support_random_system(3 + k, 0, 1.0, 20 + (uint64_t)k);
    joined all = join(systems, N);
    mlff_batch batch = all.batch;
    mlff_evaluator *one = support_evaluator_on(painn, MLFF_FLOAT64, NULL, 1, NULL),
                   *several = on_domains(painn, N, MLFF_FLOAT64, 0.5), *fresh = on_domains(painn, N, MLFF_FLOAT64, 0.5);
    for (int n = N; n > 1; n--) {
        batch.n_systems = n;
        support_results a = support_compute(one, &batch), b = support_compute(several, &batch);
        assert_int_equal(pairs_of(several), pairs_of(one));
        support_results_free(&a);
        support_results_free(&b);
    }
    assert_ok(mlff_evaluator_stage_clock_set(several, 1));
    mlff_system *divided[] = {crystal, systems[0]};
    for (int k = 0; k < 2; k++) {
        support_results r = support_compute_system(several, divided[k]);
        support_results_free(&r);
    }
    support_results r = support_compute_system(fresh, systems[0]);
    support_results_free(&r);
    assert_int_equal(pairs_of(several), pairs_of(fresh));
    mlff_domain_info domains[N];
    int n_stages, n_idle = 0;
    mlff_evaluator_stages(several, &n_stages);
    assert_int_equal(mlff_evaluator_domains(several, domains, N), N);
    for (int k = 0; k < N; k++) {
        double times[64], sum = 0;
        assert_ok(mlff_evaluator_domain_stage_times(several, k, times));
        for (int s = 0; s < n_stages; s++) sum += times[s];
        assert_true((sum > 0) == (domains[k].n_owned > 0));
        n_idle += domains[k].n_owned == 0;
    }
    assert_true(n_idle > 0);
    mlff_evaluator_destroy(one);
    mlff_evaluator_destroy(several);
    mlff_evaluator_destroy(fresh);
    for (int k = 0; k < N; k++) mlff_system_destroy(systems[k]);
    mlff_system_destroy(crystal);
    unjoin(&all);
    mlff_model_destroy(painn);
}

// A failure in one domain ends the call of all, with that domain's text, and the next call works.
static void test_failures(void **state)
{
    (void)state;
    mlff_model *painn = support_model(16, 3, "gaussian", "cosine", 0, 1);
    mlff_system *system = built("silicon", 64, 300);
    mlff_evaluator *several = on_domains(painn, 4, MLFF_FLOAT64, 0.5);
    int32_t first_atom[2];
    mlff_batch batch;
    double energy, before;
    mlff_batch_from_system(system, first_atom, &batch);
    assert_ok(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &before}));
    const double x = system->positions[0];
    for (int k = 0; k < 2; k++) {
        if (k == 0) memcpy(system->positions, system->positions + 30, 3 * sizeof(double)); // two atoms on one point
        if (k == 1) system->positions[0] = NAN;
        assert_int_equal(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_VALUE);
        assert_null(strstr(mlff_last_error(), "another domain"));
        assert_non_null(strstr(mlff_last_error(), k == 0 ? "point" : "finite"));
        mlff_system_destroy(system);
        system = built("silicon", 64, 300);
        mlff_batch_from_system(system, first_atom, &batch);
        assert_true(system->positions[0] == x);
        assert_ok(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &energy}));
        assert_true(energy == before);
    }
    mlff_system *molecule = built("aspirin", 0, 300);
    mlff_batch_from_system(molecule, first_atom, &batch);
    for (int k = 0; k < 2; k++) { // first of all calls: there are no domains yet
        mlff_evaluator *fresh = on_domains(painn, 4, MLFF_FLOAT64, 0.5);
        for (int c = 0; c < 3; c++) molecule->positions[c] = k == 0 ? 1e120 : INFINITY;
        assert_int_equal(mlff_evaluator_compute(fresh, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_VALUE);
        assert_non_null(strstr(mlff_last_error(), "coordinate"));
        mlff_evaluator_destroy(fresh);
    }
    mlff_system_destroy(molecule);
    mlff_batch_from_system(system, first_atom, &batch);
    unsigned char owned[64] = {1};
    batch.owned = owned;
    assert_int_equal(mlff_evaluator_compute(several, &batch, &(mlff_results){.energies = &energy}), MLFF_ERR_UNSUPPORTED);
    mlff_evaluator_destroy(several);
    mlff_system_destroy(system);
    mlff_model_destroy(painn);
}

static void test_devices_by_name(void **state)
{
    (void)state;
    mlff_device devices[4];
    char text[32];
    int n = 0;
    assert_ok(mlff_devices_parse("cpu:3", devices, 4, &n));
    assert_int_equal(n, 3);
    mlff_devices_text(devices, n, text, sizeof text);
    assert_string_equal(text, "cpu:3");
    assert_ok(mlff_devices_parse("cpu", devices, 4, &n));
    assert_int_equal(n, 1);
    mlff_devices_text((mlff_device[]){{MLFF_CUDA, 0}, {MLFF_CUDA, 2}}, 2, text, sizeof text);
    assert_string_equal(text, "cuda:0,2");
    assert_int_equal(mlff_devices_parse("cpu:5", devices, 4, &n), MLFF_ERR_LIMIT);
    assert_int_equal(mlff_devices_parse("cpu:0", devices, 4, &n), MLFF_ERR_USAGE);
    assert_int_equal(mlff_devices_parse("cuda:0,x", devices, 4, &n),
                     mlff_device_count(MLFF_CUDA) ? MLFF_ERR_USAGE : MLFF_ERR_DEVICE);
    assert_int_equal(mlff_devices_parse("cpu,cpu", devices, 4, &n), MLFF_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_system_on_several_domains),
        cmocka_unit_test(test_atoms_on_the_edge_of_the_cell),
        cmocka_unit_test(test_elements_that_change),
        cmocka_unit_test(test_ensembles_of_networks),
        cmocka_unit_test(test_estimated_errors),
        cmocka_unit_test(test_the_exchange_matters),
        cmocka_unit_test(test_ghosts),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_dynamics),
        cmocka_unit_test(test_dynamics_has_the_same_bits),
        cmocka_unit_test(test_other_calls_between_runs),
        cmocka_unit_test(test_heat_of_domains_that_are_left),
        cmocka_unit_test(test_failing_steps),
        cmocka_unit_test(test_batches_are_handed_out),
        cmocka_unit_test(test_domains_without_atoms),
        cmocka_unit_test(test_systems_by_their_numbers),
        cmocka_unit_test(test_devices_that_have_become_idle),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_devices_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
