# SPDX-License-Identifier: MIT
"""The structs of the C interface, field for field as the headers have them; their sizes are checked at import."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_void_p,
)

from ._values import Options

Status = c_int
STEP = CFUNCTYPE(Status, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_void_p)
STAGE_CLOCK_SET = CFUNCTYPE(Status, c_void_p, c_int)
STAGE_TIMES = CFUNCTYPE(None, c_void_p, c_void_p)
LEDGERS = CFUNCTYPE(None, c_void_p, c_void_p)
COLLECT = CFUNCTYPE(None, c_void_p)
PROGRESS = CFUNCTYPE(c_int, c_void_p, c_int64, c_int64)
BENCHMARKED = CFUNCTYPE(Status, c_void_p)
WARNING = CFUNCTYPE(None, c_void_p, c_char_p)


class mlff_system(Structure):
    _fields_ = [
        ("n_atoms", c_int),
        ("species", c_void_p),
        ("positions", c_void_p),
        ("cell", c_double * 9),
        ("periodic", c_ubyte * 3),
        ("velocities", c_void_p),
        ("masses", c_void_p),
        ("fixed", c_void_p),
        ("charge", c_double),
        ("spin", c_double),
        ("label_energy", c_double),
        ("label_forces", c_void_p),
        ("label_stress", c_double * 6),
        ("group", c_int64),
        ("time_fs", c_double),
        ("config_type", c_char * 24),
        ("info", c_char_p),
    ]


class mlff_batch(Structure):
    _fields_ = [
        ("n_systems", c_int),
        ("first_atom", c_void_p),
        ("species", c_void_p),
        ("positions", c_void_p),
        ("cells", c_void_p),
        ("periodic", c_void_p),
        ("owned", c_void_p),
        ("pairs", c_void_p),
        ("location", c_int),
        ("stream", c_void_p),
        ("charges", c_void_p),
        ("spins", c_void_p),
    ]


class mlff_results(Structure):
    _fields_ = [
        ("energies", c_void_p),
        ("atom_energies", c_void_p),
        ("forces", c_void_p),
        ("stresses", c_void_p),
        ("virials", c_void_p),
        ("location", c_int),
        ("member_energies", c_void_p),
        ("member_forces", c_void_p),
        ("energy_deviations", c_void_p),
        ("force_deviations", c_void_p),
        ("force_errors", c_void_p),
        ("atom_virials", c_void_p),
    ]


class mlff_device(Structure):
    _fields_ = [("kind", c_int), ("index", c_int)]


class mlff_device_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 128),
        ("capability_major", c_int),
        ("capability_minor", c_int),
        ("memory_bytes", c_int64),
        ("n_multiprocessors", c_int),
        ("clock_mhz", c_double),
        ("memory_clock_mhz", c_double),
        ("l2_bytes", c_int64),
        ("shared_memory_bytes", c_int),
        ("driver_version", c_int),
        ("runtime_version", c_int),
        ("driver_version_required", c_int),
        ("pci", c_char * 32),
    ]


class mlff_device_memory(Structure):
    _fields_ = [("allocated", c_int64), ("reserved", c_int64), ("peak", c_int64), ("free", c_int64), ("total", c_int64)]


class mlff_model_info(Structure):
    _fields_ = [
        ("architecture", c_char_p),
        ("name", c_char_p),
        ("description", c_char_p),
        ("reference", c_char_p),
        ("cutoff_angstrom", c_double),
        ("n_layers", c_int),
        ("n_parameters", c_int64),
        ("n_bytes", c_int64),
        ("trained", c_int),
        ("conservative", c_int),
        ("has_atom_energies", c_int),
        ("energy_unit_ev", c_double),
        ("length_unit_angstrom", c_double),
        ("n_elements", c_int),
        ("elements", c_void_p),
        ("n_members", c_int),
    ]


class mlff_import_options(Options):
    _fields_ = [("struct_size", c_size_t), ("energy_unit", c_char_p), ("length_unit", c_char_p), ("elements", c_char_p)]


class mlff_setting(Options):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class mlff_evaluator_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", mlff_device),
        ("precision", c_int),
        ("skin_angstrom", c_double),
        ("n_threads", c_int),
        ("cpu_path", c_char_p),
        ("halo", c_void_p),
        ("members", c_char_p),
        ("devices", POINTER(mlff_device)),
        ("n_devices", c_int),
    ]


class mlff_stage(Structure):
    _fields_ = [("name", c_char_p), ("phase", c_char_p), ("layer", c_int), ("includes", c_char_p)]


class mlff_evaluator_info(Structure):
    _fields_ = [
        ("device", mlff_device),
        ("precision", c_int),
        ("cpu_path", c_char_p),
        ("n_threads", c_int),
        ("n_computes", c_int64),
        ("n_pairs", c_int64),
        ("n_rebuilds", c_int64),
        ("n_growths", c_int64),
        ("host_bytes", c_int64),
        ("device_bytes", c_int64),
        ("n_members", c_int),
        ("n_near_pairs", c_int64),
    ]


class mlff_dynamics_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ensemble", c_int),
        ("timestep_fs", c_double),
        ("temperature_kelvin", c_double),
        ("friction_per_fs", c_double),
        ("seed", c_uint64),
        ("thermostat_fs", c_double),
        ("pressure", c_double),
        ("barostat_fs", c_double),
        ("compressibility", c_double),
        ("anisotropic", c_int),
        ("ramp_steps", c_int64),
        ("ramp_end_kelvin", c_double),
    ]


class mlff_dynamics_state(Structure):
    _fields_ = [
        ("step", c_int64),
        ("time_fs", c_double),
        ("potential_energy", c_double),
        ("kinetic_energy", c_double),
        ("temperature_kelvin", c_double),
        ("conserved_energy", c_double),
        ("forces", c_void_p),
        ("pressure", c_double),
        ("volume", c_double),
    ]


class mlff_relax_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("optimizer", c_int),
        ("force_limit", c_double),
        ("max_steps", c_int64),
        ("relax_cell", c_int),
        ("pressure", c_double),
        ("stress_limit", c_double),
        ("n_at_once", c_int),
        ("keep_symmetry", c_int),
    ]


class mlff_relaxed(Structure):
    _fields_ = [
        ("end", c_int),
        ("n_steps", c_int64),
        ("start_energy", c_double),
        ("energy", c_double),
        ("largest_force", c_double),
        ("largest_stress", c_double),
        ("forces", c_void_p),
        ("error", c_char_p),
    ]


RELAX_NEXT = CFUNCTYPE(Status, c_void_p, c_void_p)
RELAX_DONE = CFUNCTYPE(Status, c_void_p, c_void_p, c_void_p)
RELAX_STOPPED = CFUNCTYPE(c_int, c_void_p)


class mlff_relax_queue(Structure):
    _fields_ = [("next", RELAX_NEXT), ("done", RELAX_DONE), ("context", c_void_p), ("stopped", RELAX_STOPPED)]


GEOMETRY_BINS = 500


class mlff_geometry_kind(Structure):
    _fields_ = [
        ("elements", c_int * 3),
        ("is_angle", c_int),
        ("count", c_int),
        ("mean", c_double),
        ("deviation", c_double),
        ("low", c_double),
        ("high", c_double),
        ("bin_width", c_double),
        ("n_bins", c_int),
    ]


class mlff_vibrations_options(Options):
    _fields_ = [("struct_size", c_size_t), ("step", c_double), ("progress", PROGRESS), ("progress_context", c_void_p)]


class mlff_vibrations(Structure):
    _fields_ = [
        ("n_modes", c_int),
        ("wavenumbers", c_void_p),
        ("displacements", c_void_p),
        ("n_rigid", c_int),
        ("rigid_wavenumbers", c_double * 6),
        ("zero_point_energy", c_double),
        ("largest_force", c_double),
    ]


class mlff_callable(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("device", c_char_p),
        ("notes", c_char_p),
        ("context", c_void_p),
        ("properties", c_uint),
        ("step", c_void_p),
        ("n_stages", c_int),
        ("stages", c_void_p),
        ("stage_clock_set", c_void_p),
        ("stage_times", c_void_p),
        ("n_ledgers", c_int),
        ("ledger_names", c_void_p),
        ("ledgers", c_void_p),
        ("counters", c_void_p),
        ("destroy", c_void_p),
        ("stage_spans", c_void_p),
        ("paused_ns", c_void_p),
        ("stage_advice", c_void_p),
        ("stage_work", c_void_p),
        ("kernel_stage", c_void_p),
        ("domains", c_void_p),
        ("domain_stage_times", c_void_p),
        ("collect", c_void_p),
    ]


class mlff_statistics(Structure):
    _fields_ = [
        ("n", c_int64),
        ("mean", c_double),
        ("median", c_double),
        ("std", c_double),
        ("min", c_double),
        ("max", c_double),
        ("p95", c_double),
        ("p99", c_double),
        ("cv", c_double),
        ("n_outliers", c_int64),
        ("fence_low", c_double),
        ("fence_high", c_double),
    ]


class mlff_process_memory(Structure):
    _fields_ = [("resident_bytes", c_int64), ("heap_bytes", c_int64), ("peak_bytes", c_int64)]


class mlff_profile_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_steps", c_int64),
        ("n_warmup", c_int64),
        ("properties", c_uint),
        ("memory_every", c_int64),
        ("stages", c_int),
        ("split", c_int),
        ("timestep_fs", c_double),
        ("name", c_char_p),
        ("notes", c_char_p),
        ("progress", c_void_p),
        ("progress_context", c_void_p),
        ("until_precision", c_double),
        ("precision_of", c_double),
        ("trace_path", c_char_p),
        ("trace_steps", c_int64),
        ("overhead", c_int),
        ("kernels", c_int64),
    ]


class mlff_comparison_row(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("a_ms", c_double),
        ("b_ms", c_double),
        ("ratio", c_double),
        ("low", c_double),
        ("high", c_double),
        ("p", c_double),
        ("change", c_int),
        ("runs_needed", c_int),
    ]


class mlff_comparison_options(Options):
    _fields_ = [("struct_size", c_size_t), ("noise_floor", c_double), ("margin", c_double), ("across", c_int), ("paired", c_int)]


# Of the engine's library and of the profiler's.
FORCE_FUNCTION = CFUNCTYPE(Status, c_void_p, c_void_p, c_void_p, c_void_p)
VIRIAL_FUNCTION = CFUNCTYPE(Status, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
LABEL_PROGRESS = CFUNCTYPE(c_int, c_void_p, c_void_p)
DISTILL_PROGRESS = CFUNCTYPE(c_int, c_void_p, c_void_p)
SAMPLE_PROGRESS = CFUNCTYPE(c_int, c_void_p, c_void_p)


class mlff_labels(Options):
    _fields_ = [
        ("energy", c_double),
        ("forces", c_void_p),
        ("stress", c_void_p),
        ("atom_energies", c_void_p),
        ("weight", c_double),
    ]


class mlff_read_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("largest_force", c_double),
        ("largest_force_deviation", c_double),
        ("n_threads", c_int),
    ]


class mlff_teacher_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", mlff_device),
        ("precision", c_int),
        ("n_threads", c_int),
        ("deviations", c_int),
        ("timeout_s", c_double),
        ("devices", POINTER(mlff_device)),
        ("n_devices", c_int),
    ]


class mlff_teacher_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("description", c_char_p),
        ("hash", c_char_p),
        ("n_elements", c_int),
        ("elements", c_void_p),
        ("n_members", c_int),
        ("has_stress", c_int),
        ("has_atom_energies", c_int),
    ]


class mlff_label(Structure):
    _fields_ = [
        ("status", c_int),
        ("problem", c_char * 200),
        ("energy", c_double),
        ("forces", c_void_p),
        ("atom_energies", c_void_p),
        ("stress", c_double * 6),
        ("energy_deviation", c_double),
        ("force_deviation", c_double),
    ]


class mlff_shard_info(Structure):
    _fields_ = [
        ("teacher", c_char_p),
        ("teacher_hash", c_char_p),
        ("n_labels", c_int64),
        ("n_failed", c_int64),
        ("n_bytes", c_int64),
    ]


class mlff_label_progress(Structure):
    _fields_ = [
        ("n_done", c_int64),
        ("n_total", c_int64),
        ("n_before", c_int64),
        ("n_failed", c_int64),
        ("elapsed_s", c_double),
    ]


class mlff_label_options(Options):
    _fields_ = [("struct_size", c_size_t), ("callback", c_void_p), ("context", c_void_p)]


class mlff_sample_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_samples", c_int64),
        ("methods", c_char_p),
        ("temperatures", c_double * 8),
        ("n_temperatures", c_int),
        ("timestep_fs", c_double),
        ("friction_per_fs", c_double),
        ("interval_fs", c_double),
        ("rattle_angstrom", c_double),
        ("closest", c_double),
        ("oversample", c_double),
        ("relax", c_int),
        ("seed", c_uint64),
        ("callback", c_void_p),
        ("context", c_void_p),
        ("strain", c_double),
    ]


class mlff_loss(Options):
    _fields_ = [
        ("energy_weight", c_double),
        ("forces_weight", c_double),
        ("stress_weight", c_double),
        ("atom_energies_weight", c_double),
        ("hessian_weight", c_double),
        ("energy_per_atom", c_int),
        ("huber_forces", c_double),
    ]


class mlff_trainer_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", mlff_device),
        ("precision", c_int),
        ("n_threads", c_int),
        ("seed", c_uint64),
        ("batch_size", c_int),
        ("n_steps", c_int64),
        ("loss", mlff_loss),
        ("energy_boost", c_double),
        ("learning_rate", c_double),
        ("learning_rate_end", c_double),
        ("warm_up", c_double),
        ("schedule", c_int),
        ("plateau_factor", c_double),
        ("plateau_patience", c_int),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("weight_decay", c_double),
        ("clip", c_double),
        ("average", c_double),
        ("n_devices", c_int),
        ("devices", c_int * 8),
        ("optimizer", c_int),
        ("soap_interval", c_int),
        ("soap_decay", c_double),
        ("nearer", c_double),
    ]


class mlff_training_errors(Structure):
    _fields_ = [
        ("n_frames", c_int64),
        ("n_atoms", c_int64),
        ("loss", c_double),
        ("energy_mae", c_double),
        ("energy_rmse", c_double),
        ("force_mae", c_double),
        ("force_rmse", c_double),
        ("stress_mae", c_double),
    ]


class mlff_distill_config(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("teacher", c_char_p),
        ("systems", c_char_p),
        ("n_atoms", c_int),
        ("seed", c_uint64),
        ("n_structures", c_int),
        ("lowest_kelvin", c_double),
        ("highest_kelvin", c_double),
        ("n_probes", c_int),
        ("n_rounds", c_int),
        ("committee", c_int),
        ("max_teacher_deviation", c_double),
        ("n_features", c_int),
        ("n_layers", c_int),
        ("n_radial", c_int),
        ("cutoff_angstrom", c_double),
        ("core_repulsion", c_double),
        ("batch_size", c_int),
        ("n_steps", c_int64),
        ("learning_rate", c_double),
        ("huber_forces", c_double),
        ("optimizer", c_char_p),
        ("baseline", c_int),
        ("nve_ps", c_double),
        ("hot_ps", c_double),
        ("compare_ps", c_double),
        ("speed_s", c_double),
        ("hot_runs", c_int),
        ("max_force_error", c_double),
        ("max_energy_error", c_double),
        ("max_drift", c_double),
        ("min_speed", c_double),
        ("labels", c_char_p),
        ("labels_hash", c_char_p),
        ("systems_hash", c_char_p),
        ("n_pressed", c_int),
        ("nearer", c_double),
        ("n_dynamics", c_int),
        ("max_pressure_error", c_double),
        ("strain", c_double),
    ]


class mlff_distill_progress(Structure):
    _fields_ = [("stage", c_char_p), ("fraction", c_double), ("text", c_char_p), ("milestone", c_int)]


class mlff_distill_options(Options):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", mlff_device),
        ("n_threads", c_int),
        ("teacher", c_void_p),
        ("callback", c_void_p),
        ("context", c_void_p),
        ("labels", c_void_p),
    ]


CORE_STRUCTS: tuple[type[Structure], ...] = (
    mlff_system, mlff_batch, mlff_results, mlff_device, mlff_device_info, mlff_device_memory, mlff_model_info,
    mlff_import_options, mlff_setting, mlff_evaluator_options, mlff_stage, mlff_evaluator_info, mlff_dynamics_options, mlff_dynamics_state,
    mlff_relax_options, mlff_relaxed, mlff_relax_queue, mlff_vibrations, mlff_vibrations_options,
    mlff_labels, mlff_read_options, mlff_teacher_options, mlff_teacher_info, mlff_label, mlff_shard_info, mlff_label_progress,
    mlff_label_options, mlff_sample_options, mlff_loss, mlff_trainer_options, mlff_training_errors, mlff_distill_config,
    mlff_distill_progress, mlff_distill_options,
)  # fmt: skip
PROFILE_STRUCTS: tuple[type[Structure], ...] = (
    mlff_callable, mlff_statistics, mlff_process_memory, mlff_profile_options, mlff_comparison_options,
    mlff_comparison_row,
)  # fmt: skip
