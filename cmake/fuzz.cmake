# SPDX-License-Identifier: MIT
# Each tests/fuzz/fuzz_X.c is one target: with MLFF_FUZZ (clang) a libFuzzer program, in the tests replay_X on tests/fuzz/corpus/X.
if(NOT MLFF_FUZZ AND NOT BUILD_TESTING)
  return()
endif()

# Functions that tests/fuzz/memory_files.c has in the place of the system's.
set(FUZZ_WRAPPED open fopen fdopen fileno close read pwrite ftruncate mmap munmap flock fsync fdatasync fchmod fstat stat lstat access
    realpath unlink rename recv send setsockopt poll)
list(TRANSFORM FUZZ_WRAPPED PREPEND "-Wl,--wrap=")
add_library(memory_files OBJECT EXCLUDE_FROM_ALL tests/fuzz/memory_files.c) # its branches are not what libFuzzer looks for
target_compile_definitions(memory_files PRIVATE _GNU_SOURCE)
target_include_directories(memory_files PRIVATE tests)

file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source IN LISTS FUZZ_SOURCES)
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "fuzz_" "" subject ${name})
  if(NOT MLFF_FUZZ)
    set(name replay_${subject})
    list(APPEND source tests/fuzz/replay.c)
    add_test(NAME fuzz_replay_${subject} COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
    set_tests_properties(fuzz_replay_${subject} PROPERTIES TIMEOUT 600)
  endif()
  add_executable(${name} ${source} $<TARGET_OBJECTS:memory_files>)
  target_link_options(${name} PRIVATE ${FUZZ_WRAPPED})
  if(subject MATCHES "^(command|ipi)$")
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:mlff_cli_objects>)
    target_link_libraries(${name} PRIVATE PkgConfig::CJSON)
  endif()
  if(subject MATCHES "^(environment|halo|words)$") # what KIM and LAMMPS hand over, without their libraries
    target_sources(${name} PRIVATE bindings/kim/halo.c bindings/kim/ranks.c bindings/kim/words.c)
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_include_directories(${name} PRIVATE bindings/kim)
  endif()
  target_link_libraries(${name} PRIVATE mlff_static)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(MLFF_FUZZ)
    # Without the sanitizers (MLFF_SANITIZE=OFF) a target is several times as fast.
    set(sanitizers fuzzer$<$<BOOL:${MLFF_SANITIZE}>:,address,undefined>)
    target_compile_options(${name} PRIVATE -fsanitize=${sanitizers} -ffunction-sections)
    target_link_options(${name} PRIVATE -fsanitize=${sanitizers} -Wl,--gc-sections)
  endif()
endforeach()
