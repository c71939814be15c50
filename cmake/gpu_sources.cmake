# SPDX-License-Identifier: MIT
# The folders of the GPU plugin name their own sources: mlff_gpu_sources(a.c b.cu) in a folder's CMakeLists.txt. The plugin and the
# emulated plugin of the tests are made of the same lists: MLFF_GPU_C and MLFF_GPU_CUDA.
define_property(GLOBAL PROPERTY MLFF_GPU_SOURCES BRIEF_DOCS "Sources of the GPU plugin" FULL_DOCS "Absolute paths")
function(mlff_gpu_sources)
  foreach(source IN LISTS ARGN)
    set_property(GLOBAL APPEND PROPERTY MLFF_GPU_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
endfunction()

foreach(folder src/gpu src/model/painn/gpu src/model/ani/gpu src/model/orb/gpu)
  add_subdirectory(${folder})
endforeach()
get_property(MLFF_GPU_C GLOBAL PROPERTY MLFF_GPU_SOURCES)
set(MLFF_GPU_CUDA ${MLFF_GPU_C})
list(FILTER MLFF_GPU_C INCLUDE REGEX "\\.c$")
list(FILTER MLFF_GPU_CUDA INCLUDE REGEX "\\.cu$")
file(GLOB MLFF_GPU_DEVICE CONFIGURE_DEPENDS src/device/*_cuda.c)
list(APPEND MLFF_GPU_C ${MLFF_GPU_DEVICE})
