# SPDX-License-Identifier: MIT
# Tests of the command (tests/cli) and of what is public and installed (tests/api).
add_executable(json_get tests/cli/json_get.c)
target_link_libraries(json_get PRIVATE mlff_flags PkgConfig::CJSON)

set(CLI_TESTS help usage new info import eval eval_batch eval_labels eval_stress_labels train_leaves_out_strain copies distill_labels distill_other_seeds distill_elsewhere distill_labels_refused verdict_elements verdict_pressed verdict_words names_without_utf8 relax analyze analyze_formats vibrations md md_ensembles md_replicas md_restart md_full_disk several_devices md_cuda profile compare bench check json_documents devices devices_cuda interrupt_md interrupt_profile interrupt_measurements interrupt_vibrations interrupt_before_end
  interrupt_eval interrupt_relax interrupt_idle outputs full_disk removed full_disk_keeps full_disk_tells train_full_disk unreadable hostile ani orb closed_descriptors small_stack search_paths quiet colors plurals completion completion_in_zsh completion_words manual start
  md_killed md_replicas_killed gpu_faults sample label label_far label_resume label_xtb interrupt_runs overwrites hostile_texts two_writers standard_output
  file_size_limit hangup signal_twice compare_pipe relax_collapse shipped_students_repel relax_failed relax_interrupted replicas_overwrite analyze_fixed train_best train_interrupted distill_foreign_files distill_damaged distill_together settings_and_checkpoint compressed
  restart_other_model analyze_one_pair reader_leaves md_far_from_training profile_xtb)
if(MLFF_SANITIZE) # a minute there; what they call has tests of its own; a process that a signal ends reports nothing
  list(REMOVE_ITEM CLI_TESTS bench compare distill_labels start verdict_words reader_leaves)
endif()
foreach(name IN LISTS CLI_TESTS)
  add_test(NAME cli_${name} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/cli/test_cli.sh
    $<TARGET_FILE:mlff_cli> $<TARGET_FILE:json_get> ${name})
  set_tests_properties(cli_${name} PROPERTIES TIMEOUT 300)
endforeach()
if(MLFF_SANITIZE) # a run takes three times as long
  set_tests_properties(cli_interrupt_runs PROPERTIES ENVIRONMENT MLFF_TEST_STEPS=1000)
endif()

# One allocation or one system call that fails, in every command. The injectors need Linux on x86-64 with glibc, and no sanitizer.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT MLFF_SANITIZE)
  add_library(fail_allocation MODULE tests/faults/fail_allocation.c)
  target_link_libraries(fail_allocation PRIVATE mlff_flags ${CMAKE_DL_LIBS})
  add_executable(fail_call tests/faults/fail_call.c)
  target_link_libraries(fail_call PRIVATE mlff_flags)
  add_executable(ipi_server tests/faults/ipi_server.c)
  target_link_libraries(ipi_server PRIVATE mlff_flags)
  add_library(hide_files MODULE tests/faults/hide_files.c)
  target_link_libraries(hide_files PRIVATE mlff_flags ${CMAKE_DL_LIBS})
  add_library(leak_memory MODULE tests/faults/leak_memory.c)
  target_link_libraries(leak_memory PRIVATE mlff_flags)
  set_target_properties(fail_allocation fail_call hide_files leak_memory ipi_server PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/faults
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/faults C_VISIBILITY_PRESET default)
  foreach(kind memory calls kills)
    add_test(NAME faults_${kind} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/faults/test_faults.sh ${kind}
      $<TARGET_FILE:mlff_cli> ${PROJECT_BINARY_DIR}/faults)
    set_tests_properties(faults_${kind} PROPERTIES TIMEOUT 3600)
  endforeach()
  add_test(NAME faults_limits COMMAND bash ${PROJECT_SOURCE_DIR}/tests/faults/test_limits.sh $<TARGET_FILE:mlff_cli> ${PROJECT_BINARY_DIR}/faults)
endif()

# What `make test` builds beside `all`: the GPU plugin, that it compiles.
add_custom_target(plugin_for_tests)
if(TARGET mlff_cuda)
  add_dependencies(plugin_for_tests mlff_cuda)
endif()
if(TARGET mlff_cuda_emulated)
  set_tests_properties(cli_md_cuda cli_devices_cuda cli_gpu_faults PROPERTIES ENVIRONMENT "MLFF_CUDA_PLUGIN=$<TARGET_FILE:mlff_cuda_emulated>")
endif()

# Needs a browser; says so and is skipped where there is none.
if(NOT MLFF_SANITIZE) # the page is the same
  add_test(NAME report_in_browser COMMAND bash ${PROJECT_SOURCE_DIR}/tests/cli/report_in_browser.sh $<TARGET_FILE:mlff_cli>)
  set_tests_properties(report_in_browser PROPERTIES TIMEOUT 200 SKIP_RETURN_CODE 77)
endif()

find_program(MLFF_CXX NAMES c++ g++ clang++)
add_test(NAME cuda_architectures COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/tests/cmake/cuda_architectures.cmake)
add_test(NAME headers_alone COMMAND ${PROJECT_SOURCE_DIR}/tools/check_headers ${CMAKE_C_COMPILER} ${MLFF_CXX})
add_test(NAME install_and_link COMMAND bash ${PROJECT_SOURCE_DIR}/tests/api/install_and_link.sh ${PROJECT_BINARY_DIR})
set_tests_properties(install_and_link PROPERTIES TIMEOUT 300
  ENVIRONMENT "CC=${CMAKE_C_COMPILER};CFLAGS=$<$<BOOL:${MLFF_SANITIZE}>:-fsanitize=address,undefined>")
