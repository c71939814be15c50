# SPDX-License-Identifier: MIT
# Tests of the KIM model driver (tests/kim); without it `mlff kim` says what is missing. Those with LAMMPS are skipped, and say so,
# where there is none; a sanitized library cannot be loaded into a LAMMPS that is not.
if(NOT TARGET mlff_kim_driver)
  add_test(NAME kim_absent COMMAND mlff_cli kim list)
  set_tests_properties(kim_absent PROPERTIES PASS_REGULAR_EXPRESSION "install libkim-api-dev")
  return()
endif()
add_executable(test_kim_model ${PROJECT_SOURCE_DIR}/tests/kim/test_kim_model.c)
target_link_libraries(test_kim_model PRIVATE mlff_flags mlff PkgConfig::KIM_API PkgConfig::CMOCKA m)
set(KIM_TESTS install refusals simulator)
if(NOT MLFF_SANITIZE)
  list(APPEND KIM_TESTS lammps mpi nve units failures)
endif()
foreach(name IN LISTS KIM_TESTS)
  add_test(NAME kim_${name} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/kim/run.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${name})
  set_tests_properties(kim_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()
