// SPDX-License-Identifier: MIT
// Purpose: every GPU kernel belongs to a stage. The sources are searched for __global__ functions; each must be in the table of its
// architecture, or in that of the common kernels, and no table may name a kernel that is gone.
#include <dirent.h>

#include "gpu/evaluator/gpu_registry.h"
#include "support.h"

enum { MAX_KERNELS = 128 };
typedef struct kernel_names {
    char name[MAX_KERNELS][64];
    int n;
} kernel_names;

// Is this in a preprocessor directive? Kernels made by a macro would not be found, so that there must be none.
static bool in_directive(const char *text, const char *at)
{
    const char *begin = at, *end = strchr(at, '\n');
    while (begin > text && begin[-1] != '\n') begin--;
    return *begin == '#' || (end && end[-1] == '\\');
}

// Names of the __global__ functions of a source: the identifier before the first "(" that is no attribute's.
static void collect_from_text(const char *path, char *text, kernel_names *names)
{
    for (char *at = text; (at = strstr(at, "__global__")); at++) {
        if (in_directive(text, at))
            fail_msg("%s: a macro makes a kernel, which no table can be compared with; write it out", path);
        char *end = at + strlen("__global__");
        for (;;) { // skip void, and __launch_bounds__(…) and the like, which begin with "__"
            end += strspn(end, " \n\t");
            if (strncmp(end, "void ", 5) == 0) {
                end += 5;
                continue;
            }
            if (strncmp(end, "__", 2) != 0) break;
            end = strchr(end, '(');
            for (int depth = 0; *end;) {
                depth += (*end == '(') - (*end == ')');
                end++;
                if (depth == 0) break;
            }
        }
        end = strchr(end, '(');
        assert_non_null(end);
        char *begin = end;
        while (begin > at &&
               (begin[-1] == '_' || (begin[-1] >= '0' && begin[-1] <= '9') || (begin[-1] >= 'a' && begin[-1] <= 'z')))
            begin--;
        assert_true(end > begin && end - begin < 64 && names->n < MAX_KERNELS);
        snprintf(names->name[names->n++], 64, "%.*s", (int)(end - begin), begin);
    }
}

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t length = (size_t)ftell(file);
    char *text = calloc(length + 1, 1);
    rewind(file);
    assert_int_equal(fread(text, 1, length, file), length);
    fclose(file);
    return text;
}

static void collect(const char *folder, kernel_names *names)
{
    DIR *directory = opendir(folder);
    if (!directory) fail_msg("%s: cannot be read; run the test in the source folder", folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        const char *dot = strrchr(entry->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') collect(path, names);
        if (!dot || (strcmp(dot, ".cu") != 0 && strcmp(dot, ".cuh") != 0)) continue;
        char *text = text_of(path);
        collect_from_text(path, text, names);
        free(text);
    }
    closedir(directory);
}

static bool in_table(const gpu_kernel *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return true;
    return false;
}

static bool in_names(const kernel_names *names, const char *name)
{
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->name[i], name) == 0) return true;
    return false;
}

// A model's table may also give a stage to a kernel of src/gpu that the model launches.
static void check(const char *folder, const gpu_kernel *table)
{
    kernel_names names = {.n = 0}, common = {.n = 0};
    collect(folder, &names);
    collect("src/gpu", &common);
    assert_true(names.n > 3);
    for (int i = 0; i < names.n; i++)
        if (!in_table(table, names.name[i]))
            fail_msg("%s: %s is in no stage; add it to the table of kernels", folder, names.name[i]);
    for (; table->name; table++)
        if (!in_names(&names, table->name) && !in_names(&common, table->name))
            fail_msg("%s: there is no kernel %s; remove it from the table", folder, table->name);
}

static void test_every_kernel_has_a_stage(void **state)
{
    (void)state;
    check("src/gpu", gpu_common_kernels);
    check("src/model/painn/gpu", gpu_architecture_find("painn")->kernels);
    check("src/model/ani/gpu", gpu_architecture_find("ani")->kernels);
    check("src/model/orb/gpu", gpu_architecture_find("orb-v2")->kernels);
    assert_null(gpu_architecture_find("orb"));
}

static void test_names(void **state)
{
    (void)state;
    gpu_evaluator e = {.architecture = gpu_architecture_find("painn")};
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "message_kernel<128, 0>"), "forward/message");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "void update_back_kernel<shape<64, 1, 1> >(painn_gpu_step)"),
                        "backward/update");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "search_kernel"), "forward/neighbors");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "advance_kernel"), "integrate");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "clock_kernel"), "");
    assert_null(gpu_evaluator_kernel_stage(&e, "aev_kernel")); // another architecture's
    assert_null(gpu_evaluator_kernel_stage(&e, "at::native::vectorized_elementwise_kernel<4, MulFunctor>"));
    assert_null(gpu_evaluator_kernel_stage(&e, "my_message_kernel<128>"));
    assert_null(gpu_evaluator_kernel_stage(&e, ""));
    e.architecture = gpu_architecture_find("orb-v2");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "orb_gather_kernel<0, 1>"), "forward/message");
    assert_string_equal(gpu_evaluator_kernel_stage(&e, "dense_kernel<0, 1>"),
                        "forward/readout"); // the model's, of a common kernel
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kernel_has_a_stage), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
