# SPDX-License-Identifier: MIT
# The Python tests, one entry for each file: skipped, and saying so, where there is no python3 with NumPy and ASE. A sanitized
# library cannot be loaded into a Python that is not.
if(NOT MLFF_SANITIZE)
  file(GLOB PYTHON_TESTS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/test_*.py)
  foreach(source IN LISTS PYTHON_TESTS)
    get_filename_component(name ${source} NAME_WE)
    add_test(NAME python_${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/python/run.sh ${PROJECT_BINARY_DIR} ${name})
    set_tests_properties(python_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()
  if(TARGET mlff_cuda_emulated)
    set_tests_properties(python_test_device_arrays PROPERTIES ENVIRONMENT MLFF_CUDA_PLUGIN=$<TARGET_FILE:mlff_cuda_emulated>)
  endif()
endif()
