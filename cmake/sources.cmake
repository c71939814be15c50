# SPDX-License-Identifier: MIT
# Each folder of src names its own sources in its CMakeLists.txt, mlff_sources(PART a.c b.c …), and the folders below it. Parts:
#   base     in libmlff, libmlff_profile and the command
#   core     libmlff
#   kernels  libmlff, compiled for each instruction set
#   profile  libmlff_profile
#   cli      the command
#   gpu      the GPU plugin, and the emulated plugin of the tests
# The lists are MLFF_SOURCES_<part>, absolute paths; of the plugin's, MLFF_GPU_C and MLFF_GPU_CUDA as well.
set(MLFF_PARTS base core kernels profile cli gpu)
function(mlff_sources part)
  if(NOT part IN_LIST MLFF_PARTS)
    message(FATAL_ERROR "mlff_sources: '${part}' is none of: ${MLFF_PARTS}")
  endif()
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY MLFF_SOURCES_${part} ${ARGN})
endfunction()

foreach(folder base device atoms nn model parallel train measure profile cli gpu)
  add_subdirectory(src/${folder})
endforeach()

# A file that no folder names would be missed only when a symbol of it is.
file(GLOB_RECURSE unnamed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c ${PROJECT_SOURCE_DIR}/src/*.cu)
foreach(part IN LISTS MLFF_PARTS)
  get_property(MLFF_SOURCES_${part} GLOBAL PROPERTY MLFF_SOURCES_${part})
  list(REMOVE_ITEM unnamed ${MLFF_SOURCES_${part}})
endforeach()
if(unnamed)
  message(FATAL_ERROR "in no CMakeLists.txt of src (cmake/sources.cmake): ${unnamed}")
endif()
set(MLFF_GPU_C ${MLFF_SOURCES_gpu})
set(MLFF_GPU_CUDA ${MLFF_SOURCES_gpu})
list(FILTER MLFF_GPU_C INCLUDE REGEX "\\.c$")
list(FILTER MLFF_GPU_CUDA INCLUDE REGEX "\\.cu$")
