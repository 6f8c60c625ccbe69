# Installs the relocatable package: headers, library, and a config that finds the dependencies of a consumer.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(danling_install)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/danling")
  get_target_property(type danling TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    set(danling_is_shared ON)
  else()
    set(danling_is_shared OFF)
  endif()
  # Set explicitly, since INSTALL_RPATH_USE_LINK_PATH omits a LibTorch inside the source tree, as in .deps/.
  set(danling_install_rpath "${TORCH_INSTALL_PREFIX}/lib")
  set(danling_install_rpath "${danling_install_rpath}" PARENT_SCOPE)
  set_target_properties(danling PROPERTIES INSTALL_RPATH "$ORIGIN;${danling_install_rpath}"
    INSTALL_RPATH_USE_LINK_PATH ON)

  # The config finds a LibTorch inside the prefix by its relative path, any other by its absolute path.
  set(danling_torch_root "${TORCH_INSTALL_PREFIX}")
  file(RELATIVE_PATH danling_torch_relative "${CMAKE_INSTALL_PREFIX}" "${TORCH_INSTALL_PREFIX}")
  if(danling_torch_relative MATCHES "^\\.\\.")
    set(danling_torch_relative "")
  endif()

  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/danlingConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/danlingConfig.cmake" INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/danlingConfigVersion.cmake" COMPATIBILITY SameMinorVersion)

  install(TARGETS danling EXPORT danling)
  install(EXPORT danling FILE danlingTargets.cmake NAMESPACE danling:: DESTINATION "${package_dir}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/danling" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp")
  install(FILES "${PROJECT_BINARY_DIR}/danlingConfig.cmake" "${PROJECT_BINARY_DIR}/danlingConfigVersion.cmake"
    DESTINATION "${package_dir}")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
    "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  # Beside each other, as the links between the pages expect.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    PATTERN Doxyfile EXCLUDE)
endfunction()
