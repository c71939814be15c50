# SPDX-License-Identifier: MIT
# What goes into the Python wheel: the libraries, the GPU plugin where it was built, the command, and the libraries these
# need beside the C library itself, so that the wheel runs on a machine that has none of them.
set(MLFF_WHEEL mlff_distiller)

# DT_RPATH, not DT_RUNPATH: it also holds for what the bundled libraries load in turn. One file for each library: a wheel has
# no links.
set_target_properties(mlff mlff_profile PROPERTIES INSTALL_RPATH "$ORIGIN" VERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(mlff_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(target mlff mlff_profile mlff_cli)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS mlff mlff_profile RUNTIME_DEPENDENCY_SET mlff_needs
  LIBRARY DESTINATION ${MLFF_WHEEL}/lib COMPONENT python NAMELINK_SKIP)
install(TARGETS mlff_cli RUNTIME DESTINATION ${MLFF_WHEEL}/bin COMPONENT python)
if(MLFF_CUDA_PART_OF_ALL)
  install(TARGETS mlff_cuda LIBRARY DESTINATION ${MLFF_WHEEL}/lib COMPONENT python)
endif()
install(RUNTIME_DEPENDENCY_SET mlff_needs
  PRE_EXCLUDE_REGEXES "^lib(mlff|mlff_profile|c|m|dl|rt|pthread)\\.so" "^ld-linux"
  LIBRARY DESTINATION ${MLFF_WHEEL}/lib COMPONENT python)
install(FILES THIRD_PARTY.md DESTINATION ${MLFF_WHEEL} COMPONENT python)
file(GLOB MLFF_SHIPPED_MODELS CONFIGURE_DEPENDS models/*.safetensors models/*.json models/README.md)
install(FILES ${MLFF_SHIPPED_MODELS} DESTINATION ${MLFF_WHEEL}/models COMPONENT python)
