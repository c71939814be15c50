// SPDX-License-Identifier: MIT
// rank_files.c: a file for each process of a run over MPI. A process knows nothing of when the others end, so none collects them:
// loading the first one's file brings the others'.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank_report.h"

enum { RANKS_MAX = 100000 };

bool rank_of(const mlff_profile *profile, int *rank_out, int *n_ranks_out, int64_t *n_ghosts_out)
{
    const char *text = environment_find(&profile->workload, "rank"), *ghosts = environment_find(&profile->workload, "ghosts");
    if (!text || sscanf(text, "%d of %d", rank_out, n_ranks_out) != 2) return false;
    *n_ghosts_out = ghosts ? strtoll(ghosts, NULL, 10) : -1;
    return *rank_out >= 0 && *rank_out < *n_ranks_out && *n_ranks_out <= RANKS_MAX;
}

mlff_status mlff_profile_rank_path(const char *path, int rank, char *text, size_t text_bytes)
{
    if (!path || rank < 0 || !text) return mlff_fail(MLFF_ERR_USAGE, "path of a rank: path or text is NULL, or rank %d", rank);
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const int stem = (int)(dot ? (size_t)(dot - path) : strlen(path));
    const int n = rank == 0 ? snprintf(text, text_bytes, "%s", path)
                            : snprintf(text, text_bytes, "%.*s.rank%d%s", stem, path, rank, path + stem);
    return n >= 0 && (size_t)n < text_bytes ? MLFF_OK : mlff_fail(MLFF_ERR_LIMIT, "%s: the path is too long", path);
}

mlff_status mlff_profile_save_rank(mlff_profile *profile, const char *path, int rank, int n_ranks, int64_t n_ghosts)
{
    mlff_status status = MLFF_OK;
    char own[PATH_MAX], text[64];
    if (!profile || n_ranks < 1 || n_ranks > RANKS_MAX || rank < 0 || rank >= n_ranks)
        return mlff_fail(MLFF_ERR_USAGE, "profile of a rank: profile is NULL, or rank %d of %d", rank, n_ranks);
    MLFF_TRY(mlff_profile_rank_path(path, rank, own, sizeof own));
    if (n_ranks > 1 && !environment_find(&profile->workload, "rank")) {
        snprintf(text, sizeof text, "%d of %d", rank, n_ranks);
        MLFF_TRY(environment_add(&profile->workload, "rank", text));
        snprintf(text, sizeof text, "%lld", (long long)n_ghosts);
        if (n_ghosts >= 0) MLFF_TRY(environment_add(&profile->workload, "ghosts", text));
    }
    MLFF_TRY(mlff_profile_save(profile, own));
done:
    return status;
}

mlff_status ranks_load_others(const char *path, mlff_profile ***profiles, int *n)
{
    mlff_status status = MLFF_OK;
    int rank, n_ranks;
    int64_t n_ghosts;
    char other[PATH_MAX];
    if (*n != 1 || !rank_of((*profiles)[0], &rank, &n_ranks, &n_ghosts) || rank != 0) return MLFF_OK;
    mlff_profile **all = base_alloc((size_t)n_ranks, sizeof(mlff_profile *), "profiles of ranks");
    if (!all) return MLFF_ERR_MEMORY;
    all[0] = (*profiles)[0];
    base_free(*profiles);
    *profiles = all;
    for (int k = 1; k < n_ranks; k++, ++*n) {
        int found = -1, of = 0;
        MLFF_TRY(mlff_profile_rank_path(path, k, other, sizeof other));
        if (mlff_profile_load(other, &all[k]) != MLFF_OK)
            MLFF_FAIL(MLFF_ERR_IO, "%s: rank 0 of %d; that of rank %d cannot be read: %.300s", path, n_ranks, k,
                      mlff_last_error());
        if (!rank_of(all[k], &found, &of, &n_ghosts) || found != k || of != n_ranks) {
            mlff_profile_destroy(all[k]);
            all[k] = NULL;
            MLFF_FAIL(MLFF_ERR_FORMAT, "%s: not the profile of rank %d of %d, which %s is of", other, k, n_ranks, path);
        }
    }
done:
    return status;
}
