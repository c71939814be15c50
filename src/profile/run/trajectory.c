// SPDX-License-Identifier: MIT
// trajectory.c: where the frames of a profile come from. Frames are prepared outside the timed step.
#include <math.h>
#include <string.h>

#include "profile/profile.h"

typedef enum trajectory_kinds { THERMAL, DYNAMICS, FRAMES_OF_FILE, FRAMES } trajectory_kinds;

struct mlff_trajectory {
    trajectory_kinds kind;
    mlff_system **frames; /* [n_frames]; thermal and MD: the start alone */
    int n_frames;
    mlff_system *work; /* thermal, MD: the frame being displaced or integrated; file: the one last read */
    int64_t step;      /* frames handed out since the start */

    mlff_vibrator *vibrator; /* thermal */
    double temperature;      /* K, thermal */
    uint64_t seed;

    mlff_dynamics_options dynamics_options;
    mlff_dynamics *dynamics;

    char *path, *format;   /* of a file; format may be NULL */
    mlff_system *topology; /* or NULL */
    mlff_reader *reader;
};

static mlff_status trajectory_new(trajectory_kinds kind, const mlff_system *const *frames, int n_frames,
                                  mlff_trajectory **trajectory_out)
{
    mlff_status status = MLFF_OK;
    mlff_trajectory *trajectory = base_alloc(1, sizeof *trajectory, "a trajectory");
    if (!trajectory) return MLFF_ERR_MEMORY;
    trajectory->kind = kind;
    trajectory->frames = base_alloc((size_t)n_frames, sizeof *trajectory->frames, "frames");
    if (!trajectory->frames) {
        status = MLFF_ERR_MEMORY;
        goto done;
    }
    for (; trajectory->n_frames < n_frames; trajectory->n_frames++) {
        if (!frames[trajectory->n_frames]) MLFF_FAIL(MLFF_ERR_USAGE, "trajectory: frame %d is NULL", trajectory->n_frames);
        MLFF_TRY(mlff_system_check(frames[trajectory->n_frames], NULL));
        MLFF_TRY(mlff_system_copy(frames[trajectory->n_frames], &trajectory->frames[trajectory->n_frames]));
    }
    *trajectory_out = trajectory;
    trajectory = NULL;
done:
    mlff_trajectory_destroy(trajectory);
    return status;
}

void mlff_trajectory_destroy(mlff_trajectory *trajectory)
{
    if (!trajectory) return;
    mlff_vibrator_destroy(trajectory->vibrator);
    mlff_dynamics_destroy(trajectory->dynamics);
    mlff_reader_destroy(trajectory->reader);
    mlff_system_destroy(trajectory->work);
    for (int i = 0; i < trajectory->n_frames; i++) mlff_system_destroy(trajectory->frames[i]);
    base_free(trajectory->frames);
    mlff_system_destroy(trajectory->topology);
    base_free(trajectory->path);
    base_free(trajectory->format);
    base_free(trajectory);
}

mlff_status mlff_trajectory_thermal(const mlff_system *system, double temperature_kelvin, uint64_t seed,
                                    mlff_trajectory **trajectory_out)
{
    if (!system || !trajectory_out) return mlff_fail(MLFF_ERR_USAGE, "thermal trajectory: system or output is NULL");
    if (!isfinite(temperature_kelvin) || temperature_kelvin < 0.0)
        return mlff_fail(MLFF_ERR_VALUE, "thermal trajectory: a temperature of %g K; expected 0 or more", temperature_kelvin);
    mlff_status status = MLFF_OK;
    mlff_trajectory *trajectory = NULL;
    MLFF_TRY(trajectory_new(THERMAL, &system, 1, &trajectory));
    MLFF_TRY(mlff_vibrator_create(system, &trajectory->vibrator));
    trajectory->temperature = temperature_kelvin;
    trajectory->seed = seed;
    *trajectory_out = trajectory;
    trajectory = NULL;
done:
    mlff_trajectory_destroy(trajectory);
    return status;
}

mlff_status mlff_trajectory_md(const mlff_system *system, const mlff_dynamics_options *options, mlff_trajectory **trajectory_out)
{
    if (!system || !trajectory_out) return mlff_fail(MLFF_ERR_USAGE, "MD trajectory: system or output is NULL");
    mlff_status status = MLFF_OK;
    mlff_trajectory *trajectory = NULL;
    mlff_dynamics_options used = mlff_dynamics_options_default();
    MLFF_TRY(base_take_options("mlff_trajectory_md", "mlff_dynamics_options", options, sizeof used, &used));
    MLFF_TRY(trajectory_new(DYNAMICS, &system, 1, &trajectory));
    trajectory->dynamics_options = used;
    // A system at rest would not move like MD, and its neighbor list would never be rebuilt.
    if (!system->velocities) MLFF_TRY(mlff_system_thermalize(trajectory->frames[0], used.temperature_kelvin, used.seed));
    *trajectory_out = trajectory;
    trajectory = NULL;
done:
    mlff_trajectory_destroy(trajectory);
    return status;
}

// Opens the file again, at its first frame.
static mlff_status open_file(mlff_trajectory *trajectory)
{
    mlff_reader_destroy(trajectory->reader);
    trajectory->reader = NULL;
    const mlff_status status = mlff_reader_open(trajectory->path, trajectory->format, &trajectory->reader);
    return status == MLFF_OK && trajectory->topology ? mlff_reader_set_topology(trajectory->reader, trajectory->topology)
                                                     : status;
}

mlff_status mlff_trajectory_file(const char *path, mlff_trajectory **trajectory_out)
{
    return mlff_trajectory_file_with(path, NULL, NULL, trajectory_out);
}

mlff_status mlff_trajectory_file_with(const char *path, const char *format, const mlff_system *topology,
                                      mlff_trajectory **trajectory_out)
{
    if (!path || !trajectory_out) return mlff_fail(MLFF_ERR_USAGE, "file trajectory: path or output is NULL");
    if (strcmp(path, "-") == 0)
        return mlff_fail(MLFF_ERR_UNSUPPORTED,
                         "standard input cannot be read again for more steps than it has frames; give a file");
    mlff_status status = MLFF_OK;
    mlff_trajectory *trajectory = NULL;
    mlff_system *first = NULL;

    MLFF_TRY(trajectory_new(FRAMES_OF_FILE, NULL, 0, &trajectory));
    MLFF_TRY(profile_set(&trajectory->path, path));
    if (format) MLFF_TRY(profile_set(&trajectory->format, format));
    if (topology) MLFF_TRY(mlff_system_copy(topology, &trajectory->topology));
    // The first frame is read now, so that a wrong file is reported before anything is measured.
    MLFF_TRY(open_file(trajectory));
    MLFF_TRY(mlff_reader_next(trajectory->reader, &first));
    if (!first) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds no frame", path);
    mlff_reader_destroy(trajectory->reader);
    trajectory->reader = NULL;
    *trajectory_out = trajectory;
    trajectory = NULL;
done:
    mlff_trajectory_destroy(trajectory);
    mlff_system_destroy(first);
    return status;
}

mlff_status mlff_trajectory_frames(const mlff_system *const *frames, int n_frames, mlff_trajectory **trajectory_out)
{
    if (!frames || !trajectory_out) return mlff_fail(MLFF_ERR_USAGE, "trajectory of frames: frames or output is NULL");
    if (n_frames < 1) return mlff_fail(MLFF_ERR_USAGE, "trajectory of %d frames: at least 1 is needed", n_frames);
    return trajectory_new(FRAMES, frames, n_frames, trajectory_out);
}

mlff_status trajectory_start(mlff_trajectory *trajectory, mlff_force_function forces, void *context)
{
    mlff_status status = MLFF_OK;
    trajectory->step = 0;
    mlff_dynamics_destroy(trajectory->dynamics);
    trajectory->dynamics = NULL;
    mlff_reader_destroy(trajectory->reader);
    trajectory->reader = NULL;
    mlff_system_destroy(trajectory->work);
    trajectory->work = NULL;

    switch (trajectory->kind) {
    case THERMAL: MLFF_TRY(mlff_system_copy(trajectory->frames[0], &trajectory->work)); break;
    case DYNAMICS:
        MLFF_TRY(mlff_system_copy(trajectory->frames[0], &trajectory->work));
        MLFF_TRY(mlff_dynamics_create(&trajectory->dynamics_options, trajectory->work, forces, context, &trajectory->dynamics));
        break;
    case FRAMES_OF_FILE: MLFF_TRY(open_file(trajectory)); break;
    case FRAMES: break;
    }
done:
    return status;
}

static mlff_status next_of_file(mlff_trajectory *trajectory)
{
    mlff_system *frame = NULL;
    mlff_status status = MLFF_OK;
    if (!trajectory->reader) MLFF_TRY(open_file(trajectory));
    status = mlff_reader_next(trajectory->reader, &frame);
    if (status == MLFF_OK && !frame) { // the end: from the start again
        MLFF_TRY(open_file(trajectory));
        MLFF_TRY(mlff_reader_next(trajectory->reader, &frame));
        if (!frame) MLFF_FAIL(MLFF_ERR_FORMAT, "%s: holds no frame any more; it was changed during the run", trajectory->path);
    }
    if (status != MLFF_OK) return status;
    mlff_system_destroy(trajectory->work);
    trajectory->work = frame;
done:
    return status;
}

mlff_status trajectory_next(mlff_trajectory *trajectory, const mlff_system **frame_out)
{
    mlff_status status = MLFF_OK;
    const mlff_system *frame = trajectory->work;

    switch (trajectory->kind) {
    case THERMAL:
        // The golden ratio spreads seeds, so that neighboring ones do not share frames shifted by a step.
        MLFF_TRY(mlff_vibrator_displace(trajectory->vibrator, trajectory->temperature,
                                        trajectory->seed * 0x9E3779B97F4A7C15u + (uint64_t)trajectory->step, trajectory->work));
        break;
    case DYNAMICS: break;
    case FRAMES_OF_FILE:
        MLFF_TRY(next_of_file(trajectory));
        frame = trajectory->work;
        break;
    case FRAMES: frame = trajectory->frames[trajectory->step % trajectory->n_frames]; break;
    }
    trajectory->step++;
    *frame_out = frame;
done:
    return status;
}

bool trajectory_is_md(const mlff_trajectory *trajectory)
{
    return trajectory->kind == DYNAMICS;
}

mlff_status trajectory_integrate(mlff_trajectory *trajectory)
{
    return mlff_dynamics_step(trajectory->dynamics);
}

double trajectory_timestep_fs(const mlff_trajectory *trajectory)
{
    return trajectory->kind == DYNAMICS ? trajectory->dynamics_options.timestep_fs : NAN;
}

const char *trajectory_kind(const mlff_trajectory *trajectory)
{
    static const char *const names[] = {"thermal", "md", "file", "frames"};
    return names[trajectory->kind];
}
