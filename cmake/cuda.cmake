# SPDX-License-Identifier: MIT
# The GPU plugin libmlff_cuda.so: opened at run time by libmlff, depends on no CUDA library. MLFF_CUDA, or the environment variable of
# that name, says where it is built:
#   auto  with nvcc on a machine with a GPU, for that GPU (default). Without a GPU only `make test` builds it.
#   ON    with nvcc: for this machine's GPU, or without one for Hopper and as PTX, which the driver compiles at the first start
#   all   for every GPU that nvcc knows, as packages need it
#   OFF   never
# CMAKE_CUDA_ARCHITECTURES, or CUDAARCHS in the environment, chooses other architectures.
include(${CMAKE_CURRENT_LIST_DIR}/cuda_architectures.cmake)
include(CheckLanguage)

if(DEFINED ENV{MLFF_CUDA})
  set(MLFF_CUDA_DEFAULT "$ENV{MLFF_CUDA}")
else()
  set(MLFF_CUDA_DEFAULT auto)
endif()
set(MLFF_CUDA "${MLFF_CUDA_DEFAULT}" CACHE STRING "Build libmlff_cuda.so: auto, ON, all or OFF")
set_property(CACHE MLFF_CUDA PROPERTY STRINGS auto ON all OFF)

set(MLFF_CUDA_PART_OF_ALL FALSE)
if(NOT MLFF_CUDA)
  message(STATUS "GPU plugin: switched off; models run on the CPU")
  return()
endif()
if(MLFF_SANITIZE OR MLFF_FUZZ)
  return()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT MLFF_CUDA STREQUAL "auto")
    message(FATAL_ERROR "MLFF_CUDA=${MLFF_CUDA} needs nvcc: set CUDACXX to it, or use MLFF_CUDA=OFF")
  endif()
  message(STATUS "GPU plugin: skipped, no nvcc; models run on the CPU")
  return()
endif()

mlff_gpus_here(MLFF_GPUS)
if(MLFF_CUDA STREQUAL "auto" AND NOT MLFF_GPUS AND NOT BUILD_TESTING)
  message(STATUS "GPU plugin: skipped, no GPU here; MLFF_CUDA=all builds it for other machines")
  return()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES AND DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE MLFF_KNOWN_GPUS ERROR_QUIET)
  mlff_cuda_architectures("${MLFF_CUDA}" "${MLFF_GPUS}" "${MLFF_KNOWN_GPUS}" CMAKE_CUDA_ARCHITECTURES)
endif()
set(MLFF_CUDA_OPTIONAL)
if(MLFF_CUDA STREQUAL "auto" AND NOT MLFF_GPUS)
  set(MLFF_CUDA_OPTIONAL EXCLUDE_FROM_ALL)
  message(STATUS "GPU plugin: no GPU here, built by `make test` only; MLFF_CUDA=all builds it for other machines")
else()
  set(MLFF_CUDA_PART_OF_ALL TRUE)
  message(STATUS "GPU plugin: ${CMAKE_CUDA_COMPILER}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
endif()
enable_language(CUDA)
add_library(mlff_cuda MODULE ${MLFF_CUDA_OPTIONAL} ${MLFF_GPU_C} ${MLFF_GPU_CUDA})
target_compile_definitions(mlff_cuda PRIVATE MLFF_VERSION="${PROJECT_VERSION}" $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
target_compile_options(mlff_cuda PRIVATE $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow>)
target_include_directories(mlff_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(mlff_cuda SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
set_target_properties(mlff_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
  CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
target_link_libraries(mlff_cuda PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m -static-libstdc++ -static-libgcc)
# The plugin with the tests' own architecture in it, for a machine with a GPU: MLFF_CUDA_PLUGIN names it.
if(BUILD_TESTING)
  add_library(mlff_cuda_lennard_jones_gpu MODULE EXCLUDE_FROM_ALL $<TARGET_OBJECTS:mlff_cuda> tests/lennard_jones/lj_gpu.c
    tests/lennard_jones/lj_gpu.cu)
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES)
    set_property(TARGET mlff_cuda_lennard_jones_gpu PROPERTY ${property} $<TARGET_PROPERTY:mlff_cuda,${property}>)
  endforeach()
  target_include_directories(mlff_cuda_lennard_jones_gpu PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_include_directories(mlff_cuda_lennard_jones_gpu SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  set_target_properties(mlff_cuda_lennard_jones_gpu PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
    CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
endif()
