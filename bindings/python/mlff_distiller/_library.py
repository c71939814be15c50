# SPDX-License-Identifier: MIT
"""Finds and loads libmlff and libmlff_profile, declares their functions, and turns their failures into exceptions.

Looked for, in this order: the folder of the environment variable MLFF_LIBRARY_DIR, the folder `lib` of this package
(where `pip install` puts them), `build/lib` of a clone this package lies in, and the system's own paths.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import os
import pathlib
import threading
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NoReturn

from . import _structs as s
from ._values import CHECKED, as_c, path_bytes as path_bytes
from .errors import BY_STATUS, MlffError, MlffWarning

OK = 0
CALLBACK = 12
INTERRUPTED = 11
CPU = 0
CUDA = 1
MAX_DEVICES = 64  # of one evaluator
ENERGY = 1
FORCES = 2
STRESS = 4
HOST = 0
DEVICE_MEMORY = 1

_P = c_void_p
_PP = POINTER(c_void_p)

# name: (result, arguments); a result of None here means a status that is checked.
_CORE: dict[str, tuple[Any, list[Any]]] = {
    "mlff_last_error": (c_char_p, []),
    "mlff_last_cause": (c_char_p, []),
    "mlff_status_name": (c_char_p, [c_int]),
    "mlff_version": (c_char_p, []),
    "mlff_fail": (c_int, [c_int, c_char_p, c_char_p]),
    "mlff_warning_handler_set": ("void", [_P, _P]),
    "mlff_abi_size": (c_size_t, [c_char_p]),
    "mlff_element_symbol": (c_char_p, [c_int]),
    "mlff_element_number": (c_int, [c_char_p]),
    "mlff_element_mass": (c_double, [c_int]),
    "mlff_system_temperature": (c_double, [_P]),
    "mlff_charge_of_sum": (c_double, [c_double]),
    "mlff_group_of_text": (c_int64, [c_char_p]),
    "mlff_system_density": (c_double, [_P]),
    "mlff_system_create": (None, [c_int, _PP]),
    "mlff_system_add_velocities": (None, [_P]),
    "mlff_system_add_masses": (None, [_P]),
    "mlff_system_add_fixed": (None, [_P]),
    "mlff_system_build": (None, [c_char_p, c_int, c_uint64, _PP]),
    "mlff_system_perturb": (None, [_P, c_double, c_uint64]),
    "mlff_system_destroy": ("void", [_P]),
    "mlff_device_parse": (None, [c_char_p, POINTER(s.mlff_device)]),
    "mlff_devices_parse": (None, [c_char_p, POINTER(s.mlff_device), c_int, POINTER(c_int)]),
    "mlff_device_count": (c_int, [c_int]),
    "mlff_device_problem": (c_char_p, []),
    "mlff_device_info_get": (None, [s.mlff_device, POINTER(s.mlff_device_info)]),
    "mlff_device_memory_get": (None, [s.mlff_device, POINTER(s.mlff_device_memory)]),
    "mlff_device_peak_reset": (None, [s.mlff_device]),
    "mlff_device_cache_empty": (None, [s.mlff_device]),
    "mlff_device_synchronize": (None, [s.mlff_device]),
    "mlff_device_warm_up": (None, [s.mlff_device]),
    "mlff_device_allocate": (None, [s.mlff_device, c_size_t, _PP]),
    "mlff_device_release": ("void", [s.mlff_device, _P]),
    "mlff_device_copy": (None, [s.mlff_device, _P, _P, c_size_t]),
    "mlff_stream_create": (None, [s.mlff_device, _PP]),
    "mlff_stream_synchronize": (None, [s.mlff_device, _P]),
    "mlff_stream_destroy": ("void", [s.mlff_device, _P]),
    "mlff_event_create": (None, [s.mlff_device, _PP]),
    "mlff_event_record": (None, [s.mlff_device, _P, _P]),
    "mlff_event_elapsed": (None, [s.mlff_device, _P, _P, POINTER(c_double)]),
    "mlff_event_destroy": ("void", [s.mlff_device, _P]),
    "mlff_system_thermalize": (None, [_P, c_double, c_uint64]),
    "mlff_model_load": (None, [c_char_p, _PP]),
    "mlff_model_save": (None, [_P, c_char_p]),
    "mlff_model_import": (None, [c_char_p, POINTER(s.mlff_import_options), _PP]),
    "mlff_import_options_default": (s.mlff_import_options, []),
    "mlff_model_create": (None, [c_char_p, POINTER(s.mlff_setting), _PP]),
    "mlff_model_outputs": (c_uint, [_P]),
    "mlff_model_info_get": ("void", [_P, POINTER(s.mlff_model_info)]),
    "mlff_model_metadata": (c_char_p, [_P, c_int, POINTER(c_char_p)]),
    "mlff_model_extrapolates_at": (c_int, [_P, c_double, POINTER(c_double)]),
    "mlff_model_nearest": (c_double, [_P]),
    "mlff_model_destroy": ("void", [_P]),
    "mlff_evaluator_options_default": (s.mlff_evaluator_options, []),
    "mlff_evaluator_create": (None, [_P, POINTER(s.mlff_evaluator_options), _PP]),
    "mlff_evaluator_compute": (c_int, [_P, POINTER(s.mlff_batch), POINTER(s.mlff_results)]),
    "mlff_evaluator_info_get": ("void", [_P, POINTER(s.mlff_evaluator_info)]),
    "mlff_evaluator_stages": (POINTER(s.mlff_stage), [_P, POINTER(c_int)]),
    "mlff_evaluator_stage_clock_set": (None, [_P, c_int]),
    "mlff_evaluator_stage_times": ("void", [_P, _P]),
    "mlff_evaluator_destroy": ("void", [_P]),
    "mlff_dynamics_options_default": (s.mlff_dynamics_options, []),
    "mlff_dynamics_create_on": (None, [_P, POINTER(s.mlff_dynamics_options), _P, _P, _P, _PP]),
    "mlff_dynamics_device": (s.mlff_device, [_P]),
    "mlff_dynamics_run": (None, [_P, c_int64, _P]),
    "mlff_dynamics_state_get": (None, [_P, POINTER(s.mlff_dynamics_state)]),
    "mlff_dynamics_save": (None, [_P, c_char_p]),
    "mlff_dynamics_restore_on": (None, [_P, _P, c_char_p]),
    "mlff_dynamics_destroy": ("void", [_P]),
    "mlff_replicas_create": (None, [_P, _P, _P, c_int, _PP]),
    "mlff_replicas_run": (None, [_P, c_int64, _P]),
    "mlff_replicas_dynamics": (_P, [_P, c_int]),
    "mlff_replicas_error": (c_char_p, [_P, c_int]),
    "mlff_replicas_device": (s.mlff_device, [_P]),
    "mlff_replicas_destroy": ("void", [_P]),
    "mlff_relax_options_default": (s.mlff_relax_options, []),
    "mlff_relax": (c_int, [_P, POINTER(s.mlff_relax_options), POINTER(s.mlff_relax_queue)]),
    "mlff_vibrations_options_default": (s.mlff_vibrations_options, []),
    "mlff_vibrations_compute": (c_int, [_P, _P, POINTER(s.mlff_vibrations_options), POINTER(s.mlff_vibrations)]),
    "mlff_vibrations_free": ("void", [POINTER(s.mlff_vibrations)]),
    "mlff_reader_open": (None, [c_char_p, c_char_p, _PP]),
    "mlff_reader_set_topology": (None, [_P, _P]),
    "mlff_reader_next": (None, [_P, _PP]),
    "mlff_reader_destroy": ("void", [_P]),
    "mlff_rdf_create": (None, [c_double, c_int, c_int, c_int, _PP]),
    "mlff_rdf_add": (None, [_P, _P]),
    "mlff_rdf_get": ("void", [_P, _P, _P, _P, _P]),
    "mlff_rdf_destroy": ("void", [_P]),
    "mlff_msd_create": (None, [c_double, c_int, _PP]),
    "mlff_msd_add": (None, [_P, _P]),
    "mlff_msd_get": ("void", [_P, c_int, _P]),
    "mlff_msd_diffusion": ("void", [_P, POINTER(c_double), POINTER(c_double)]),
    "mlff_msd_destroy": ("void", [_P]),
    "mlff_vdos_create": (None, [c_double, c_int, _PP]),
    "mlff_vdos_add": (None, [_P, _P]),
    "mlff_vdos_size": (c_int, [_P]),
    "mlff_vdos_get": (None, [_P, _P, _P, _P]),
    "mlff_vdos_destroy": ("void", [_P]),
    "mlff_geometry_create": (None, [_P, _PP]),
    "mlff_geometry_add": (None, [_P, _P]),
    "mlff_geometry_size": (c_int, [_P]),
    "mlff_geometry_get": ("void", [_P, c_int, POINTER(s.mlff_geometry_kind), _P]),
    "mlff_geometry_destroy": ("void", [_P]),
    "mlff_dataset_create": (None, [_PP]),
    "mlff_dataset_destroy": ("void", [_P]),
    "mlff_dataset_add": (None, [_P, _P, POINTER(s.mlff_labels)]),
    "mlff_read_options_default": (s.mlff_read_options, []),
    "mlff_dataset_note_energy": (None, [_P, c_char_p, c_int]),
    "mlff_dataset_read_some": (None, [_P, c_char_p, POINTER(s.mlff_read_options), POINTER(c_int64)]),
    "mlff_dataset_center_atom_energies": ("void", [_P]),
    "mlff_dataset_size": (c_int64, [_P]),
    "mlff_dataset_get": (None, [_P, c_int64, _PP]),
    "mlff_dataset_remove_far": (None, [_P, _P, c_double, POINTER(s.mlff_evaluator_options), POINTER(c_int64)]),
    "mlff_dataset_split": (None, [_P, c_double, c_uint64, _PP, _PP]),
    "mlff_dataset_copies": (None, [_P, _P, POINTER(c_int64), _P]),
    "mlff_dataset_check": (None, [_P]),
    "mlff_dataset_shifts": (None, [_P, _P]),
    "mlff_trainer_options_default": (s.mlff_trainer_options, []),
    "mlff_trainer_create": (None, [_P, _P, POINTER(s.mlff_trainer_options), _PP]),
    "mlff_trainer_destroy": ("void", [_P]),
    "mlff_trainer_run": (None, [_P, c_int64, _P, POINTER(s.mlff_training_errors)]),
    "mlff_trainer_validate": (None, [_P, _P, POINTER(s.mlff_training_errors)]),
    "mlff_trainer_element_errors": ("void", [_P, _P]),
    "mlff_trainer_report": ("void", [_P, c_double]),
    "mlff_trainer_step": (c_int64, [_P]),
    "mlff_trainer_learning_rate": (c_double, [_P]),
    "mlff_trainer_model": (None, [_P, c_int, _PP]),
    "mlff_trainer_save": (None, [_P, c_char_p]),
    "mlff_trainer_restore": (None, [_P, c_char_p]),
    "mlff_trainer_n_parameters": (c_int64, [_P]),
    "mlff_trainer_gradient": (None, [_P, _P, c_int, _P, _P]),
    "mlff_model_with_shifts": (None, [_P, _P, _PP]),
    "mlff_model_to_train": (None, [_P, _P, c_int, _PP]),
    "mlff_distill_preset": (None, [c_char_p, POINTER(s.mlff_distill_config)]),
    "mlff_dataset_save": (None, [_P, c_char_p]),
    "mlff_labels_warn": (None, [c_char_p, c_int]),
    "mlff_distill_use_labels": ("void", [POINTER(s.mlff_distill_config), c_char_p]),
    "mlff_distill_options_default": (s.mlff_distill_options, []),
    "mlff_distill": (c_int, [POINTER(s.mlff_distill_config), c_char_p, POINTER(s.mlff_distill_options), _P]),
    "mlff_teacher_options_default": (s.mlff_teacher_options, []),
    "mlff_teacher_open": (None, [c_char_p, POINTER(s.mlff_teacher_options), _PP]),
    "mlff_teacher_create_model": (None, [_P, POINTER(s.mlff_teacher_options), _PP]),
    "mlff_teacher_create": (None, [c_char_p, _P, _P, _PP]),
    "mlff_teacher_virial_set": ("void", [_P, _P, _P]),
    "mlff_teacher_destroy": ("void", [_P]),
    "mlff_teacher_info_get": ("void", [_P, POINTER(s.mlff_teacher_info)]),
    "mlff_teacher_compute": (c_int, [_P, _P, c_int, POINTER(s.mlff_label)]),
    "mlff_label_clear": ("void", [POINTER(s.mlff_label)]),
    "mlff_samples_create": (None, [_PP]),
    "mlff_samples_destroy": ("void", [_P]),
    "mlff_samples_add": (None, [_P, _P, c_char_p]),
    "mlff_samples_size": (c_int64, [_P]),
    "mlff_samples_get": (_P, [_P, c_int64, POINTER(c_char_p)]),
    "mlff_samples_add_probes": (None, [_P, c_int, c_double, c_uint64]),
    "mlff_samples_select": (None, [_P, c_int64, _P]),
    "mlff_sample_options_default": (s.mlff_sample_options, []),
    "mlff_sample": (c_int, [_P, _P, POINTER(s.mlff_sample_options), _P]),
    "mlff_shard_open": (None, [c_char_p, _P, _PP]),
    "mlff_shard_close": (None, [_P]),
    "mlff_shard_info_get": ("void", [_P, POINTER(s.mlff_shard_info)]),
    "mlff_label_options_default": (s.mlff_label_options, []),
    "mlff_shard_label": (c_int, [_P, _P, _P, POINTER(s.mlff_label_options), POINTER(s.mlff_label_progress)]),
    "mlff_shard_has": (c_int, [_P, _P]),
    "mlff_shard_append": (None, [_P, _P, POINTER(s.mlff_label), c_char_p]),
    "mlff_shard_export": (None, [c_char_p, c_char_p]),
}
_PROFILE: dict[str, tuple[Any, list[Any]]] = {
    "mlff_profile_abi_size": (c_size_t, [c_char_p]),
    "mlff_clock_ns": (c_int64, []),
    "mlff_process_memory_get": ("void", [POINTER(s.mlff_process_memory)]),
    "mlff_callable_from_evaluator": (None, [_P, _P, POINTER(s.mlff_callable)]),
    "mlff_callable_destroy": ("void", [POINTER(s.mlff_callable)]),
    "mlff_statistics_of": (None, [_P, c_int64, POINTER(s.mlff_statistics)]),
    "mlff_benchmark": (c_int, [_P, _P, c_int64, c_int64, _P, _P]),
    "mlff_trajectory_thermal": (None, [_P, c_double, c_uint64, _PP]),
    "mlff_trajectory_md": (None, [_P, POINTER(s.mlff_dynamics_options), _PP]),
    "mlff_trajectory_file": (None, [c_char_p, _PP]),
    "mlff_trajectory_frames": (None, [_PP, c_int, _PP]),
    "mlff_trajectory_destroy": ("void", [_P]),
    "mlff_profile_options_default": (s.mlff_profile_options, []),
    "mlff_profile_run": (c_int, [POINTER(s.mlff_callable), _P, POINTER(s.mlff_profile_options), _PP]),
    "mlff_profile_destroy": ("void", [_P]),
    "mlff_profile_json": (None, [_P, _PP]),
    "mlff_profile_text": (None, [_P, c_int, _PP]),
    "mlff_profile_hotspots_json": (None, [_P, c_double, _PP]),
    "mlff_profile_save": (None, [_P, c_char_p]),
    "mlff_profile_load": (None, [c_char_p, _PP]),
    "mlff_profile_html": (None, [_PP, c_int, c_char_p, _PP]),
    "mlff_comparison_options_default": (s.mlff_comparison_options, []),
    "mlff_profile_compare": (None, [_PP, c_int, _PP, c_int, POINTER(s.mlff_comparison_options), _PP]),
    "mlff_profile_text_short": (None, [_P, c_int, _PP]),
    "mlff_comparison_text": (None, [_P, _PP]),
    "mlff_compare_values": (
        None, [_P, c_int, _P, c_int, POINTER(s.mlff_comparison_options), POINTER(s.mlff_comparison_row)],
    ),
    "mlff_comparison_json": (None, [_P, _PP]),
    "mlff_comparison_destroy": ("void", [_P]),
    "mlff_text_free": ("void", [_P]),
}


def folders() -> list[pathlib.Path]:
    """Folders in which the libraries are looked for, best first."""
    found = []
    if os.environ.get("MLFF_LIBRARY_DIR"):
        found.append(pathlib.Path(os.environ["MLFF_LIBRARY_DIR"]))
    here = pathlib.Path(__file__).resolve().parent
    # An editable installation has two folders of this name: the sources and what was built.
    import mlff_distiller

    found += [pathlib.Path(path) / "lib" for path in mlff_distiller.__path__]
    clone = here.parents[2]
    if (clone / "include" / "mlff_profile.h").exists():
        found.append(clone / "build" / "lib")
    return found


def _open(name: str) -> ctypes.CDLL:
    tried = []
    for folder in folders():
        path = folder / name
        if path.exists():
            return ctypes.CDLL(str(path))
        tried.append(str(path))
    try:
        return ctypes.CDLL(name)
    except OSError as problem:
        raise ImportError(
            f"mlff_distiller needs {name}, which was not found ({problem}); looked for {', '.join(tried)} and in the system's "
            "paths. Install the package with `pip install .` in a clone, or set MLFF_LIBRARY_DIR to the folder that has it"
        ) from None


def _check(status: int, function: Any, arguments: Any) -> int:
    if status != OK:
        raise_status(status)
    if _warnings:
        show_warnings()
    return status


def _with_checks(name: str, function: Any, kinds: list[Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*(as_c(kind, value, name) if kind in CHECKED else value for kind, value in zip(kinds, arguments)))

    return call


def _declare(library: ctypes.CDLL, table: dict[str, tuple[Any, list[Any]]]) -> None:
    for name, (result, arguments) in table.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{library._name} has no {name}: it is older than this package; install both from one clone") from None
        function.argtypes = arguments
        if result is None:
            function.restype = c_int
            function.errcheck = _check
        else:
            function.restype = None if result == "void" else result
        if any(kind in CHECKED for kind in arguments):
            setattr(library, name, _with_checks(name, function, arguments))


def _check_sizes(size_of: Any, structs: tuple[type[ctypes.Structure], ...], path: str) -> None:
    for struct in structs:
        name, here = struct.__name__, ctypes.sizeof(struct)
        there = size_of(name.encode())
        if there != here:
            raise ImportError(
                f"{path}: {name} has {there} bytes, and {here} in this package: the two are of different builds; "
                "install both from one clone"
            )


core = _open("libmlff.so.0")
profile = _open("libmlff_profile.so.0")
_declare(core, _CORE)
_declare(profile, _PROFILE)
_check_sizes(core.mlff_abi_size, s.CORE_STRUCTS, core._name)
_check_sizes(profile.mlff_profile_abi_size, s.PROFILE_STRUCTS, profile._name)

# ---- failures and warnings -----------------------------------------------------------------------------------------

_warnings: collections.deque[str] = collections.deque(maxlen=100)
_warned = threading.Lock()


def _keep_warning(context: int | None, text: bytes) -> None:
    _warnings.append(text.decode("utf-8", "replace"))  # shown by show_warnings, where raising is allowed


_keep_warning_c = s.WARNING(_keep_warning)
core.mlff_warning_handler_set(ctypes.cast(_keep_warning_c, c_void_p), None)
atexit.register(core.mlff_warning_handler_set, None, None)


def show_warnings() -> None:
    """Hands warnings of the library to `warnings.warn`."""
    while True:
        try:
            text = _warnings.popleft()
        except IndexError:
            return
        warnings.warn(text, MlffWarning, stacklevel=4)


def last_error() -> str:
    text: bytes = core.mlff_last_error()
    return text.decode("utf-8", "replace")


def last_cause() -> str:
    """The last error without its remedy."""
    text: bytes = core.mlff_last_cause()
    return text.decode("utf-8", "replace")


def raise_status(status: int) -> NoReturn:
    """Raises the exception of a status with the library's text."""
    error = BY_STATUS.get(status, MlffError)(last_error() or core.mlff_status_name(status).decode())
    error.status = status
    raise error


def fail(status: int, text: str) -> int:
    """How a callback reports a failure; gives back the status."""
    core.mlff_fail(status, b"%s", text.replace("\n", " ").replace("\0", " ").encode("utf-8", "replace")[:900])
    return status


def take_text(function: Any, *arguments: Any) -> str:
    """Calls a function whose last output is a text that is ours, and frees it."""
    out = c_void_p()
    function(*arguments, ctypes.byref(out))
    try:
        return ctypes.string_at(out.value or 0).decode("utf-8", "replace")
    finally:
        profile.mlff_text_free(out)


def version() -> str:
    text: bytes = core.mlff_version()
    return text.decode()
