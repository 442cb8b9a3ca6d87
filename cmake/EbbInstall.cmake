# Install rules: library, headers, command, example configs; `find_package(ebb)` and `pkg-config ebb`.

include(CMakePackageConfigHelpers)

# What the library links outside the system's folders stays on its search path: so it finds the
# OpenBLAS flavour it was built with, whatever flavour the system prefers.
set_target_properties(ebb PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ebb EXPORT ebbTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

file(RELATIVE_PATH bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set_target_properties(ebb_program PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(TARGETS ebb_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

install(DIRECTORY include/ebb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/ebb FILES_MATCHING PATTERN "*.json")
install(DIRECTORY lessons DESTINATION ${CMAKE_INSTALL_DATADIR}/ebb FILES_MATCHING PATTERN "*.[ch]"
    PATTERN page EXCLUDE PATTERN "course.*" EXCLUDE)
install(DIRECTORY devices DESTINATION ${CMAKE_INSTALL_DATADIR}/ebb FILES_MATCHING PATTERN "*.json")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)
configure_package_config_file(cmake/ebbConfig.cmake.in "${PROJECT_BINARY_DIR}/ebbConfig.cmake"
    INSTALL_DESTINATION ${package_dir})
# Before 1.0 each minor version may break its users.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ebbConfig.cmake" "${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
    DESTINATION ${package_dir})
install(EXPORT ebbTargets NAMESPACE ebb:: DESTINATION ${package_dir})

# The pkg-config file finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH pkgconfig_to_prefix
    "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/ebb.pc.in "${PROJECT_BINARY_DIR}/ebb.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/ebb.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
