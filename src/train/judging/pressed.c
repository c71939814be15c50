// SPDX-License-Identifier: MIT
// pressed.c: the bar of structures in which two atoms are pressed together: is the student wrong there by more than the forces are large?
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis.h"
#include "beside_teacher.h"
#include "model/evaluator/evaluator.h"
#include "train/sampling/pressed_pairs.h"
#include "verdict.h"

#define MOST_WRONG 10.0 // %
// K. Bonds vary by 0.02 Å, as they do at 300 K. Independent displacements at 300 K would press some of many bonds too: of boxes of 999 atoms
// nine tenths were wrong where of molecules a third is.
#define DISPLACED_AT 10.0
// eV/Å. Less is no divergence: where a pair is hardly pressed, the teacher's forces may be as small as errors that the bar error.forces allows.
// 10 change the velocity of a hydrogen atom in a step of 0.5 fs by three times its root mean square along an axis at 300 K.
#define LEAST_ERROR 10.0
// eV/Å. At 100 a hydrogen atom moves by 0.12 Å in the first step of 0.5 fs: no dynamics can be made there, with the teacher neither.
#define LARGEST_FORCE 100.0
// Of each side of the interval, which is computed after FIRST, 2 FIRST, … structures: by default five times at most, together 0.01.
#define ERROR 0.002
enum { FIRST = 64, AT_ONCE = 64, DRAWS = 4, ENOUGH_FAILURES = 16 };

// Structures that the teacher computes in one call.
typedef struct pressed_block {
    int n;
    mlff_system *systems[AT_ONCE];
    sample_contact closest[AT_ONCE]; // the pair that was pressed where all others are farther apart than bonds
    mlff_label labels[AT_ONCE];
} pressed_block;

static void block_clear(pressed_block *block)
{
    for (int k = 0; k < block->n; k++) {
        mlff_system_destroy(block->systems[k]);
        mlff_label_clear(&block->labels[k]);
    }
    block->n = 0;
}

typedef struct pressed_tally {
    int64_t n_drawn; // structures that were made, also those that are not counted
    int n, n_wrong;
    int n_failed, n_large; // not counted: the teacher fails, or its forces are above LARGEST_FORCE
    double worst, error,
        largest;       // of the worst: error over what makes it wrong, the student's error, the teacher's largest force, eV/Å
    char atoms[48];    // "O1-H5 at 0.61"; "" before the first
    char problem[200]; // of the teacher
} pressed_tally;

// Up to n structures with a pair that is pressed and no atoms nearer than that, of those before number `end`.
static mlff_status fill(const verdict_run *run, const pressed_pairs *pairs, int n, pressed_tally *tally, int64_t end,
                        pressed_block *block)
{
    mlff_status status = MLFF_OK;
    while (block->n < n && tally->n_drawn < end) {
        mlff_system *system;
        sample_contact pressed, closest;
        MLFF_TRY(pressed_pairs_make(pairs, run->start, tally->n_drawn++, &system, &pressed));
        block->systems[block->n] = system;
        block->labels[block->n++] = (mlff_label){0};
        MLFF_TRY(sample_closest_pair(system, &closest));
        block->closest[block->n - 1] = closest.ratio < pressed.ratio ? closest : pressed;
        if (pressed.a >= 0 && closest.ratio >= VERDICT_PRESSED_TO) continue;
        mlff_system_destroy(block->systems[--block->n]);
    }
done:
    return status;
}

// Infinite where one is not finite.
static double largest_component(const double *forces, const double *other, int n)
{
    double largest = 0;
    for (int k = 0; k < n; k++) {
        const double value = fabs(forces[k] - (other ? other[k] : 0));
        if (!(value <= largest)) largest = isfinite(value) ? value : INFINITY;
    }
    return largest;
}

static mlff_status judge(const verdict_run *run, const mlff_system *system, const sample_contact *pair, const mlff_label *label,
                         double *forces, pressed_tally *tally)
{
    const int n = 3 * system->n_atoms, *z = system->species;
    const double largest = label->status == MLFF_OK ? largest_component(label->forces, NULL, n) : INFINITY;
    if (isinf(largest)) {
        if (tally->n_failed++ == 0)
            snprintf(tally->problem, sizeof tally->problem, "%s",
                     label->status == MLFF_OK ? "a force is not finite" : label->problem);
        return MLFF_OK;
    }
    if (largest > LARGEST_FORCE) {
        tally->n_large++;
        return MLFF_OK;
    }
    double energy;
    const mlff_status status = run->student.forces(run->student.context, system, &energy, forces);
    if (status != MLFF_OK && !verdict_of_structure(status)) return status;
    const double error = status == MLFF_OK ? largest_component(forces, label->forces, n) : INFINITY;
    const double part = error / fmax(largest, LEAST_ERROR);
    tally->n++;
    tally->n_wrong += part > 1;
    if (tally->atoms[0] && !(part > tally->worst)) return MLFF_OK;
    tally->worst = part, tally->error = error, tally->largest = largest;
    base_format(tally->atoms, sizeof tally->atoms, "%s%d-%s%d at %.2f", mlff_element_symbol(z[pair->a]), pair->a,
                mlff_element_symbol(z[pair->b]), pair->b, pair->ratio);
    return MLFF_OK;
}

// Goes on until `target` structures are counted, or too many were made for that.
static mlff_status measure(const verdict_run *run, const pressed_pairs *pairs, int target, pressed_block *block, double *forces,
                           pressed_tally *tally)
{
    mlff_status status = MLFF_OK;
    const int parallel = beside_teacher_parallel(run->teacher);
    const int64_t end = (int64_t)DRAWS * target;
    while (tally->n < target && tally->n_drawn < end && (tally->n > 0 || tally->n_failed < ENOUGH_FAILURES)) {
        const int left = target - tally->n, n = parallel < left ? parallel : left;
        MLFF_TRY(verdict_tell(run, "atoms pressed together", (double)tally->n / target));
        MLFF_TRY(fill(run, pairs, n < AT_ONCE ? n : AT_ONCE, tally, end, block));
        MLFF_TRY(beside_teacher_label(run->teacher, block->systems, block->n, block->labels));
        for (int k = 0; k < block->n; k++)
            MLFF_TRY(judge(run, block->systems[k], &block->closest[k], &block->labels[k], forces, tally));
        block_clear(block);
    }
done:
    return status;
}

// Of the structures asked for, those that a large system is given: a call takes longer.
static int most_structures(const verdict_run *run)
{
    const double part = fmax(0.25, fmin(1, 128.0 / run->start->n_atoms));
    return (int)fmax(1, part * run->verdict->options.n_pressed);
}

static void not_counted(const pressed_tally *tally, char *text, size_t bytes)
{
    char large[80] = "", failed[60] = "";
    text[0] = 0;
    if (tally->n_large == 0 && tally->n_failed == 0) return;
    if (tally->n_large > 0)
        base_format(large, sizeof large, "%d where the teacher has more than %g eV/Å", tally->n_large, LARGEST_FORCE);
    if (tally->n_failed > 0) base_format(failed, sizeof failed, "%d where the teacher fails", tally->n_failed);
    base_format(text, bytes, "; not counted: %s%s%s", large, large[0] && failed[0] ? ", " : "", failed);
}

static void tell(mlff_bar *bar, const pressed_tally *tally, const analysis_interval *interval)
{
    char error[48] = "forces that are not finite", others[160];
    not_counted(tally, others, sizeof others);
    if (isfinite(tally->error)) base_format(error, sizeof error, "%.3g eV/Å off", tally->error);
    verdict_say(bar,
                "%d of %d structure%s with two atoms pressed to %g of their covalent distance %s wrong (%.1f to %.1f %%%s); "
                "worst: %s, %s where the teacher has %.3g%s",
                tally->n_wrong, tally->n, base_plural(tally->n), VERDICT_PRESSED_TO, tally->n_wrong == 1 ? "is" : "are",
                100 * interval->low, 100 * interval->high,
                bar->state == MLFF_BAR_NOT_MEASURED ? ": too few to tell, more decide" : "", tally->atoms, error, tally->largest,
                others);
}

static void tell_why_not(const verdict_run *run, mlff_bar *bar, const pressed_tally *tally)
{
    if (run->start->n_atoms == 1)
        verdict_say(bar, "one atom has no pair to press; name a larger system");
    else if (tally->n_failed > 0)
        verdict_say(bar, "the teacher fails at %d of %d structures with two atoms pressed together: %.160s", tally->n_failed,
                    tally->n_failed + tally->n_large, tally->problem);
    else if (tally->n_large > 0)
        verdict_say(bar, "the teacher has more than %g eV/Å in each of %d structures with two atoms pressed together",
                    LARGEST_FORCE, tally->n_large);
    else
        verdict_say(bar,
                    "no structure with two atoms pressed together: no atoms are within 6 Å, or others are nearer than %g of "
                    "their covalent distance to begin with; name a relaxed system",
                    VERDICT_PRESSED_TO);
}

mlff_status verdict_pressed(const verdict_run *run)
{
    mlff_status status = MLFF_OK;
    const mlff_verdict_options *o = &run->verdict->options;
    pressed_pairs pairs = {.closest = VERDICT_PRESSED_TO, .kelvin = DISPLACED_AT, .seed = o->seed};
    pressed_block block = {0};
    pressed_tally tally = {0};
    analysis_interval interval = {0, 1};
    double *forces = NULL;
    bool expected = false, decided = false, goes_on = true;
    if (!run->teacher) {
        verdict_say(verdict_add(run->verdict, "pressed", "%", NAN, NAN, MOST_WRONG, 0),
                    "no teacher to measure beside; name one, or ask for 0 pressed structures");
        return MLFF_OK;
    }
    if (!(forces = base_alloc(3 * (size_t)run->start->n_atoms, sizeof *forces, "forces"))) return MLFF_ERR_MEMORY;
    mlff_teacher *teacher = beside_teacher_of(run->teacher);
    if (run->evaluator) expected = evaluator_expect_magnitudes(run->evaluator, true); // none: a field of the caller's
    if (teacher) teacher_expect_magnitudes(teacher, true);
    MLFF_TRY(pressed_pairs_open(run->start, &pairs));
    const int most = most_structures(run);
    for (int target = most < FIRST ? most : FIRST; goes_on && target <= most; target *= 2) {
        MLFF_TRY(measure(run, &pairs, target, &block, forces, &tally));
        if (tally.n > 0) interval = analysis_share(tally.n_wrong, tally.n, ERROR);
        decided = 100 * interval.high <= MOST_WRONG || 100 * interval.low > MOST_WRONG;
        goes_on = !decided && tally.n == target;
    }
    const double share = tally.n > 0 ? 100.0 * tally.n_wrong / tally.n : NAN;
    mlff_bar *bar = verdict_add(run->verdict, "pressed", "%", share,
                                fmax(share - 100 * interval.low, 100 * interval.high - share), MOST_WRONG, 0);
    if (!decided) bar->state = MLFF_BAR_NOT_MEASURED;
    if (tally.n > 0)
        tell(bar, &tally, &interval);
    else
        tell_why_not(run, bar, &tally);
done:
    if (run->evaluator) evaluator_expect_magnitudes(run->evaluator, expected);
    if (teacher) teacher_expect_magnitudes(teacher, false);
    pressed_pairs_close(&pairs);
    block_clear(&block);
    base_free(forces);
    return status;
}
