# SPDX-License-Identifier: MIT
"""Devices, benchmarks and the MD profiler. The name is history's: all of it works without a GPU too."""

from __future__ import annotations

from .._devices import Device
from .benchmark_utils import (
    BenchmarkResult,
    CUDATimer,
    ProfilerContext,
    benchmark_function,
    benchmark_md_trajectory,
    compare_implementations,
    print_comparison_table,
    profile_with_nsys,
    timer_context,
)
from .device_utils import (
    GPUInfo,
    check_memory_leak,
    cuda_memory_tracker,
    empty_cache,
    get_cuda_stream,
    get_device,
    get_gpu_info,
    get_gpu_memory_info,
    get_peak_memory_allocated,
    list_available_devices,
    print_device_summary,
    print_gpu_memory_summary,
    reset_peak_memory_stats,
    synchronize_device,
    torch_device_context,
    warmup_cuda,
)
from .md_profiler import MDProfiler, MDProfileResult, identify_hotspots, profile_md_trajectory

__all__ = [
    "BenchmarkResult",
    "CUDATimer",
    "Device",
    "GPUInfo",
    "MDProfileResult",
    "MDProfiler",
    "ProfilerContext",
    "benchmark_function",
    "benchmark_md_trajectory",
    "check_memory_leak",
    "compare_implementations",
    "cuda_memory_tracker",
    "empty_cache",
    "get_cuda_stream",
    "get_device",
    "get_gpu_info",
    "get_gpu_memory_info",
    "get_peak_memory_allocated",
    "identify_hotspots",
    "list_available_devices",
    "print_comparison_table",
    "print_device_summary",
    "print_gpu_memory_summary",
    "profile_md_trajectory",
    "profile_with_nsys",
    "reset_peak_memory_stats",
    "synchronize_device",
    "timer_context",
    "torch_device_context",
    "warmup_cuda",
]
