// SPDX-License-Identifier: MIT
// system.c: atoms and their cell: made, copied, repeated, checked, named; a batch of one.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "atoms/atoms.h"

mlff_status mlff_system_create(int n_atoms, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *system = NULL;

    if (n_atoms < 1) return mlff_fail(MLFF_ERR_USAGE, "a system of %d atoms; at least one is needed", n_atoms);
    if (!(system = base_alloc(1, sizeof *system, "a system"))) return MLFF_ERR_MEMORY;
    system->n_atoms = n_atoms;
    system->charge = system->spin = system->label_energy = system->label_stress[0] = system->time_fs = NAN;
    system->group = -1;
    system->species = base_alloc((size_t)n_atoms, sizeof *system->species, "species");
    system->positions = base_alloc((size_t)n_atoms, 3 * sizeof(double), "positions");
    if (!system->species || !system->positions) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    *system_out = system;
    system = NULL;
done:
    mlff_system_destroy(system);
    return status;
}

void mlff_system_destroy(mlff_system *system)
{
    if (!system) return;
    base_free(system->species);
    base_free(system->positions);
    base_free(system->velocities);
    base_free(system->masses);
    base_free(system->fixed);
    base_free(system->label_forces);
    base_free(system->info);
    base_free(system);
}

mlff_status mlff_system_set_info(mlff_system *system, const char *info)
{
    char *copy = NULL;
    if (info && strpbrk(info, "\r\n")) return mlff_fail(MLFF_ERR_USAGE, "the info of a system has more than one line");
    if (info && !(copy = base_strdup(info))) return MLFF_ERR_MEMORY;
    base_free(system->info);
    system->info = copy;
    return MLFF_OK;
}

// `times` copies of an optional array one after the other: *to is new, or NULL if `from` is.
static mlff_status copy_array(const void *from, size_t bytes, size_t times, const char *what, void *to)
{
    if (!from) return MLFF_OK;
    char *copy = base_alloc(times, bytes, what);
    if (!copy) return MLFF_ERR_MEMORY;
    for (size_t k = 0; k < times; k++) memcpy(copy + k * bytes, from, bytes);
    memcpy(to, &copy, sizeof copy); // `to` is the address of a T *, of any T
    return MLFF_OK;
}

static mlff_status copy_optional(const mlff_system *system, size_t times, mlff_system *copy)
{
    mlff_status status = MLFF_OK;
    size_t n = (size_t)system->n_atoms;
    MLFF_TRY(copy_array(system->velocities, n * 3 * sizeof(double), times, "velocities", &copy->velocities));
    MLFF_TRY(copy_array(system->masses, n * sizeof(double), times, "masses", &copy->masses));
    MLFF_TRY(copy_array(system->fixed, n, times, "fixed atoms", &copy->fixed));
done:
    return status;
}

mlff_status mlff_system_copy(const mlff_system *system, mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *copy = NULL;
    size_t n = (size_t)system->n_atoms;

    MLFF_TRY(mlff_system_create(system->n_atoms, &copy));
    memcpy(copy->species, system->species, n * sizeof *copy->species);
    memcpy(copy->positions, system->positions, n * 3 * sizeof(double));
    memcpy(copy->cell, system->cell, sizeof copy->cell);
    memcpy(copy->periodic, system->periodic, sizeof copy->periodic);
    copy->charge = system->charge;
    copy->spin = system->spin;
    copy->group = system->group;
    copy->time_fs = system->time_fs;
    memcpy(copy->config_type, system->config_type, sizeof copy->config_type);
    copy->label_energy = system->label_energy;
    memcpy(copy->label_stress, system->label_stress, sizeof copy->label_stress);
    MLFF_TRY(copy_optional(system, 1, copy));
    MLFF_TRY(copy_array(system->label_forces, n * 3 * sizeof(double), 1, "forces", &copy->label_forces));
    MLFF_TRY(mlff_system_set_info(copy, system->info));
    *system_out = copy;
    copy = NULL;
done:
    mlff_system_destroy(copy);
    return status;
}

// Images are in the order of their shifts, the third the fastest; within an image atoms keep their order.
mlff_status mlff_system_repeat(const mlff_system *system, const int n[3], mlff_system **system_out)
{
    mlff_status status = MLFF_OK;
    mlff_system *repeated = NULL;
    int64_t n_total = system->n_atoms;

    for (int axis = 0; axis < 3; axis++) {
        const double *vector = system->cell + 3 * axis;
        if (n[axis] < 1) return mlff_fail(MLFF_ERR_USAGE, "cannot repeat a system %d times along axis %d", n[axis], axis + 1);
        if (n[axis] > 1 && vector[0] == 0.0 && vector[1] == 0.0 && vector[2] == 0.0)
            return mlff_fail(MLFF_ERR_USAGE, "cannot repeat along axis %d: the system has no cell vector there", axis + 1);
        n_total *= n[axis];
        if (n_total > INT_MAX)
            return mlff_fail(MLFF_ERR_LIMIT, "%d atoms repeated %d × %d × %d times are more than a system holds (%d)",
                             system->n_atoms, n[0], n[1], n[2], INT_MAX);
    }
    size_t n_images = (size_t)n[0] * (size_t)n[1] * (size_t)n[2], n_atoms = (size_t)system->n_atoms;

    MLFF_TRY(mlff_system_create((int)n_total, &repeated));
    MLFF_TRY(copy_optional(system, n_images, repeated));
    size_t atom = 0;
    for (size_t image = 0; image < n_images; image++) {
        double shift[3] = {(double)(image / ((size_t)n[1] * (size_t)n[2])), (double)(image / (size_t)n[2] % (size_t)n[1]),
                           (double)(image % (size_t)n[2])};
        for (size_t i = 0; i < n_atoms; i++, atom++) {
            repeated->species[atom] = system->species[i];
            for (int c = 0; c < 3; c++)
                repeated->positions[3 * atom + c] = system->positions[3 * i + c] + shift[0] * system->cell[c] +
                                                    shift[1] * system->cell[3 + c] + shift[2] * system->cell[6 + c];
        }
    }
    for (int k = 0; k < 9; k++) repeated->cell[k] = n[k / 3] * system->cell[k];
    memcpy(repeated->periodic, system->periodic, sizeof repeated->periodic);
    repeated->charge = system->charge * (double)n_images;
    if (n_images == 1) repeated->spin = system->spin; // how the spins of copies couple is not ours to guess
    *system_out = repeated;
    repeated = NULL;
done:
    mlff_system_destroy(repeated);
    return status;
}

mlff_status mlff_system_add_velocities(mlff_system *system)
{
    if (system->velocities) return MLFF_OK;
    system->velocities = base_alloc((size_t)system->n_atoms, 3 * sizeof(double), "velocities");
    return system->velocities ? MLFF_OK : MLFF_ERR_MEMORY;
}

mlff_status mlff_system_add_masses(mlff_system *system)
{
    if (system->masses) return MLFF_OK;
    system->masses = base_alloc((size_t)system->n_atoms, sizeof(double), "masses");
    if (!system->masses) return MLFF_ERR_MEMORY;
    for (int i = 0; i < system->n_atoms; i++) system->masses[i] = mlff_element_mass(system->species[i]);
    return MLFF_OK;
}

mlff_status mlff_system_add_fixed(mlff_system *system)
{
    if (system->fixed) return MLFF_OK;
    system->fixed = base_alloc((size_t)system->n_atoms, 1, "fixed atoms");
    return system->fixed ? MLFF_OK : MLFF_ERR_MEMORY;
}

double atoms_mass(const mlff_system *system, int i)
{
    return system->masses ? system->masses[i] : mlff_element_mass(system->species[i]);
}

double mlff_system_density(const mlff_system *system)
{
    const double gram_per_cm3 = 1.66053904; // of 1 amu/Å³, CODATA 2014
    double mass = 0;
    if (!system->periodic[0] || !system->periodic[1] || !system->periodic[2]) return NAN;
    for (int i = 0; i < system->n_atoms; i++) mass += atoms_mass(system, i);
    return gram_per_cm3 * mass / mlff_system_volume(system);
}

double mlff_system_temperature(const mlff_system *system)
{
    double twice = 0, total = 0, momentum[3] = {0};
    int n_free = 0;
    for (int i = 0; system->velocities && i < system->n_atoms; i++) {
        if (system->fixed && system->fixed[i]) continue;
        const double *v = system->velocities + 3 * (size_t)i, mass = atoms_mass(system, i);
        twice += mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        for (int c = 0; c < 3; c++) momentum[c] += mass * v[c];
        total += mass;
        n_free++;
    }
    const bool without_whole = n_free == system->n_atoms && n_free > 1;
    for (int c = 0; without_whole && c < 3; c++) twice -= momentum[c] * momentum[c] / total;
    const int n_degrees = 3 * n_free - (without_whole ? 3 : 0);
    return n_degrees > 0 ? fmax(0, twice) * BASE_AMU_ANG2_FS2_EV / (n_degrees * BASE_KB_EV_PER_K) : NAN;
}

void atoms_drop_labels(mlff_system *system)
{
    system->label_energy = system->label_stress[0] = NAN;
    base_free(system->label_forces);
    system->label_forces = NULL;
    atoms_drop_label_pairs(system);
}

static double norm(const double v[3])
{
    return sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
}

static void cross(const double a[3], const double b[3], double product[3])
{
    product[0] = a[1] * b[2] - a[2] * b[1];
    product[1] = a[2] * b[0] - a[0] * b[2];
    product[2] = a[0] * b[1] - a[1] * b[0];
}

// Sine of the angle between two vectors, or of that between a vector and a plane: below this they count as dependent.
#define MIN_SINE 1e-6
// What rounding leaves of dependent vectors.
#define NO_SINE 1e-8

// Directions only, so that a very long or short vector neither hides nor feigns dependence.
static mlff_status check_cell(const mlff_system *system, const char *name, const char *colon)
{
    double unit[3][3];
    int n_periodic = 0;

    for (int k = 0; k < 9; k++)
        if (!isfinite(system->cell[k]))
            return mlff_fail(MLFF_ERR_VALUE, "%s%sthe cell has a number that is not finite", name, colon);
    for (int axis = 0; axis < 3; axis++) {
        if (!system->periodic[axis]) continue;
        const double *vector = system->cell + 3 * axis;
        double largest = fmax(fabs(vector[0]), fmax(fabs(vector[1]), fabs(vector[2])));
        if (largest == 0.0)
            return mlff_fail(MLFF_ERR_VALUE,
                             "%s%speriodic along axis %d, but without a cell vector there; give the cell or pbc=\"F F F\"", name,
                             colon, axis + 1);
        double *direction = unit[n_periodic++];
        for (int c = 0; c < 3; c++) direction[c] = vector[c] / largest;
        double length = norm(direction);
        for (int c = 0; c < 3; c++) direction[c] /= length;
    }
    if (n_periodic < 2) return MLFF_OK;

    double normal[3];
    cross(unit[0], unit[1], normal);
    double sine = norm(normal);
    if (n_periodic == 3 && sine > MIN_SINE)
        sine = fabs(normal[0] * unit[2][0] + normal[1] * unit[2][1] + normal[2] * unit[2][2]) / sine;
    if (sine > NO_SINE && !(sine > MIN_SINE))
        return mlff_fail(
            MLFF_ERR_VALUE,
            "%s%sthe cell is too skewed: its periodic vectors are within %g of one line or plane; give shorter ones of "
            "the same lattice, by adding whole multiples of one to another",
            name, colon, MIN_SINE);
    if (!(sine > MIN_SINE))
        return mlff_fail(MLFF_ERR_VALUE, "%s%sthe periodic cell vectors are not independent: the cell has no volume", name,
                         colon);
    return MLFF_OK;
}

mlff_status mlff_system_check(const mlff_system *system, const char *name)
{
    const char *colon = name ? ": " : "";
    if (!name) name = "";

    if (system->n_atoms < 1) return mlff_fail(MLFF_ERR_USAGE, "%s%sno atoms", name, colon);
    for (int i = 0; i < system->n_atoms; i++) {
        int z = system->species[i];
        if (z < 1 || z > MLFF_MAX_ATOMIC_NUMBER)
            return mlff_fail(MLFF_ERR_ELEMENT, "%s%satom %d has atomic number %d; 1 to %d are known", name, colon, i, z,
                             MLFF_MAX_ATOMIC_NUMBER);
        if (system->masses && !(system->masses[i] > 0.0 && isfinite(system->masses[i])))
            return mlff_fail(MLFF_ERR_VALUE, "%s%satom %d has mass %g amu; it must be above 0", name, colon, i,
                             system->masses[i]);
        for (int c = 0; c < 3; c++) {
            if (!isfinite(system->positions[3 * (size_t)i + c]))
                return mlff_fail(MLFF_ERR_VALUE, "%s%sthe position of atom %d is not finite", name, colon, i);
            if (system->velocities && !isfinite(system->velocities[3 * (size_t)i + c]))
                return mlff_fail(MLFF_ERR_VALUE, "%s%sthe velocity of atom %d is not finite", name, colon, i);
        }
    }
    return check_cell(system, name, colon);
}

double mlff_charge_of_sum(double sum)
{
    return fabs(sum) >= 0.5 && isfinite(sum) ? round(sum) : NAN;
}

int64_t mlff_group_of_text(const char *text)
{
    const uint64_t least = UINT64_C(1) << 61;
    int64_t number;
    const char *end = atoms_skip_blanks(text);
    if (!*end) return -1;
    if (atoms_parse_integer(&end, &number) && !*atoms_skip_blanks(end)) return number >= 0 ? number : -1;
    uint64_t hash = 14695981039346656037u; // FNV-1a
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (int64_t)(least | (hash ^ hash >> 32) % least);
}

double mlff_system_volume(const mlff_system *system)
{
    const double *cell = system->cell;
    double normal[3];
    cross(cell, cell + 3, normal);
    return fabs(normal[0] * cell[6] + normal[1] * cell[7] + normal[2] * cell[8]);
}

void mlff_system_formula(const mlff_system *system, char *text, size_t text_bytes)
{
    int counts[MLFF_MAX_ATOMIC_NUMBER + 1] = {0};
    for (int i = 0; i < system->n_atoms; i++) {
        int z = system->species[i];
        counts[z >= 1 && z <= MLFF_MAX_ATOMIC_NUMBER ? z : 0]++;
    }
    // Hill order: carbon, then hydrogen, then by symbol; without carbon all by symbol. Unknown species come last as X.
    int order[MLFF_MAX_ATOMIC_NUMBER + 1], n = 0;
    for (int z = 1; z <= MLFF_MAX_ATOMIC_NUMBER; z++) {
        if (!counts[z]) continue;
        int at = n++;
        bool leads = counts[6] && (z == 6 || z == 1);
        for (; at > 0; at--) {
            int before = order[at - 1];
            bool before_leads = counts[6] && (before == 6 || before == 1);
            bool is_later = leads != before_leads ? leads
                            : leads               ? z == 6
                                                  : strcmp(mlff_element_symbol(z), mlff_element_symbol(before)) < 0;
            if (!is_later) break;
            order[at] = before;
        }
        order[at] = z;
    }
    if (counts[0]) order[n++] = 0;

    static const char ellipsis[] = "…";
    size_t length = 0;
    text[0] = 0;
    for (int k = 0; k < n; k++) {
        char part[24];
        const char *symbol = order[k] ? mlff_element_symbol(order[k]) : "X";
        int count = counts[order[k]];
        size_t part_length =
            (size_t)(count > 1 ? snprintf(part, sizeof part, "%s%d", symbol, count) : snprintf(part, sizeof part, "%s", symbol));
        // Room is kept for the ellipsis, unless this is the last part.
        size_t needed = part_length + (k + 1 < n ? sizeof ellipsis : 1);
        if (length + needed > text_bytes) {
            memcpy(text + length, ellipsis, sizeof ellipsis);
            return;
        }
        memcpy(text + length, part, part_length + 1);
        length += part_length;
    }
}

void mlff_batch_from_system(const mlff_system *system, int32_t first_atom[2], mlff_batch *batch_out)
{
    bool has_cell = false;
    for (int k = 0; k < 9; k++) has_cell |= system->cell[k] != 0.0;
    first_atom[0] = 0;
    first_atom[1] = system->n_atoms;
    *batch_out = (mlff_batch){
        .n_systems = 1,
        .first_atom = first_atom,
        .species = system->species,
        .positions = system->positions,
        .cells = has_cell ? system->cell : NULL,
        .periodic = system->periodic,
        .location = MLFF_HOST,
        .charges = &system->charge,
        .spins = &system->spin,
    };
}

bool atoms_invert(const double m[9], double inverse[9])
{
    const double c[9] = {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
                         m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
                         m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
    const double determinant = m[0] * c[0] + m[1] * c[3] + m[2] * c[6];
    if (!(fabs(determinant) > 0)) return false;
    for (int k = 0; k < 9; k++) inverse[k] = c[k] / determinant;
    return true;
}
