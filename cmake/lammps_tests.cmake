# SPDX-License-Identifier: MIT
# Tests of lmp_mlff (tests/lammps), where it is built.
if(NOT TARGET lmp_mlff)
  return()
endif()
foreach(name forces layouts events derivatives nve melt runs clear hybrid types exclusions ghost_groups deviation extrapolation profile failures hostile gpu)
  add_test(NAME lammps_${name} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/lammps/run.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${name})
  set_tests_properties(lammps_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()
if(TARGET mlff_cuda_emulated)
  set_tests_properties(lammps_gpu PROPERTIES ENVIRONMENT "MLFF_CUDA_PLUGIN=$<TARGET_FILE:mlff_cuda_emulated>")
endif()
