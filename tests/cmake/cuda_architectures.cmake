# SPDX-License-Identifier: MIT
# What the GPU plugin is compiled for, by MLFF_CUDA, the machine's GPUs and nvcc: cmake -P tests/cmake/cuda_architectures.cmake
cmake_minimum_required(VERSION 3.21)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/cuda_architectures.cmake)

function(expect wanted gpus known expected)
  mlff_cuda_architectures("${wanted}" "${gpus}" "${known}" got)
  if(NOT got STREQUAL expected)
    message(FATAL_ERROR "MLFF_CUDA=${wanted}, GPUs '${gpus}', nvcc '${known}': '${got}', expected '${expected}'")
  endif()
endfunction()

set(nvcc_13 "compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_103\ncompute_121\n")
set(nvcc_11 "compute_35\ncompute_70\ncompute_80\n")
expect(all "" "${nvcc_13}" "75-virtual;80-virtual;90a-real;90-virtual")
expect(all "90" "${nvcc_13}" "75-virtual;80-virtual;90a-real;90-virtual")
expect(all "" "${nvcc_11}" "70-virtual;80-virtual")
expect(auto "90" "${nvcc_13}" "90a-real")
expect(ON "80;90;80" "${nvcc_13}" "80-real;90a-real")
expect(ON "103" "${nvcc_13}" "103-real")
expect(ON "90" "${nvcc_11}" "80-virtual") # newer than nvcc
expect(auto "" "${nvcc_13}" "90a-real;75-virtual")
expect(ON "" "${nvcc_11}" "70-virtual")
expect(ON "" "" "70-virtual") # an nvcc that does not say

# A driver's answer: two kinds of GPU; no driver.
set(folder "${CMAKE_CURRENT_BINARY_DIR}/fake_nvidia_smi")
set(path "$ENV{PATH}")
foreach(answer "echo 9.0; echo 8.6; echo 9.0" "exit 9")
  file(WRITE "${folder}/nvidia-smi" "#!/bin/sh\n${answer}\n")
  file(CHMOD "${folder}/nvidia-smi" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(ENV{PATH} "${folder}:${path}")
  mlff_gpus_here(gpus)
  list(APPEND found "[${gpus}]")
endforeach()
file(REMOVE_RECURSE "${folder}")
if(NOT found STREQUAL "[90;86];[]")
  message(FATAL_ERROR "GPUs found: ${found}")
endif()
