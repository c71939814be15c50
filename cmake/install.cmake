# SPDX-License-Identifier: MIT
# Installation, and how other projects find it: pkg-config (mlff, mlff_profile) and CMake (find_package(mlff), targets
# mlff::mlff and mlff::mlff_profile). All paths are relative to the files themselves: the installed tree may be moved.
include(CMakePackageConfigHelpers)

set(MLFF_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/mlff)
file(RELATIVE_PATH MLFF_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" MLFF_PC_PREFIX ${MLFF_PC_PREFIX})
foreach(name mlff mlff_profile)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

install(TARGETS mlff mlff_profile EXPORT mlff-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(MLFF_CUDA_PART_OF_ALL) # looked for beside the library
  install(TARGETS mlff_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS mlff_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Manual pages and completions come from the command itself; a command of another processor does not run here.
if(NOT CMAKE_CROSSCOMPILING AND NOT MLFF_SANITIZE)
  set(MLFF_TEXTS ${PROJECT_BINARY_DIR}/texts)
  add_custom_command(OUTPUT ${MLFF_TEXTS}/mlff ${MLFF_TEXTS}/_mlff
    COMMAND ${CMAKE_COMMAND} -E make_directory ${MLFF_TEXTS}
    COMMAND mlff_cli manual -o ${MLFF_TEXTS}/man1
    COMMAND mlff_cli completion bash > ${MLFF_TEXTS}/mlff
    COMMAND mlff_cli completion zsh > ${MLFF_TEXTS}/_mlff
    DEPENDS mlff_cli VERBATIM)
  add_custom_target(mlff_texts ALL DEPENDS ${MLFF_TEXTS}/mlff ${MLFF_TEXTS}/_mlff)
  install(DIRECTORY ${MLFF_TEXTS}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${MLFF_TEXTS}/mlff DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${MLFF_TEXTS}/_mlff DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
file(GLOB MLFF_PUBLIC_HEADERS CONFIGURE_DEPENDS include/*.h)
install(FILES ${MLFF_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Students that ship, found by name (src/model/weights/model_path.c).
file(GLOB MLFF_SHIPPED_MODELS CONFIGURE_DEPENDS models/*.safetensors models/*.json models/README.md)
install(FILES ${MLFF_SHIPPED_MODELS} DESTINATION ${CMAKE_INSTALL_DATADIR}/mlff/models)
# The library looks for models relative to its own folder: so it finds them from a build folder anywhere.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/mlff)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models ${PROJECT_BINARY_DIR}/share/mlff/models SYMBOLIC)

install(EXPORT mlff-targets NAMESPACE mlff:: DESTINATION ${MLFF_CMAKE_FOLDER})
configure_package_config_file(cmake/mlff-config.cmake.in ${PROJECT_BINARY_DIR}/mlff-config.cmake
  INSTALL_DESTINATION ${MLFF_CMAKE_FOLDER} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mlff-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mlff-config.cmake ${PROJECT_BINARY_DIR}/mlff-config-version.cmake
  DESTINATION ${MLFF_CMAKE_FOLDER})
