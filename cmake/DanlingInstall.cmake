# Installs the relocatable package: headers, library, and a config that finds the dependencies of a consumer.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(DANLING_INSTALL_TORCH "" CACHE PATH "Where installed files look for LibTorch; where this build found it when empty")

# danling_install_pkg_config(): danling.pc, whose directories follow a moved prefix.
function(danling_install_pkg_config)
  set(folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH up "/prefix/${folder}" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(danling_pc_prefix "\${pcfiledir}/${up}")
  foreach(name IN ITEMS INCLUDE LIB)
    string(TOLOWER ${name} variable)
    set(danling_pc_${variable} "${CMAKE_INSTALL_${name}DIR}")
    if(NOT IS_ABSOLUTE "${danling_pc_${variable}}")
      string(PREPEND danling_pc_${variable} "\${prefix}/")
    endif()
  endforeach()
  set(danling_pc_torch "${danling_torch_root}")
  if(danling_torch_relative)
    set(danling_pc_torch "\${prefix}/${danling_torch_relative}")
  endif()
  set(danling_pc_requires "")
  if(NOT danling_is_shared)
    set(danling_pc_requires "yaml-cpp zlib")
    if(DANLING_WITH_IMAGES)
      string(APPEND danling_pc_requires " libjpeg libpng")
    endif()
  endif()
  # libtorch.so has no symbols: it loads the libraries that register kernels.
  set(libraries "-L\${torchdir}/lib -Wl,-rpath,\${torchdir}/lib -ltorch_cpu -lc10")
  if(APPLE)
    string(APPEND libraries " -ltorch")
  else()
    string(APPEND libraries " -Wl,--push-state,--no-as-needed,-ltorch,--pop-state -pthread")
  endif()
  set(danling_pc_libraries "${libraries}")
  set(definitions "$<TARGET_PROPERTY:danling,COMPILE_DEFINITIONS>")
  set(danling_pc_definitions "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions}, -D>>")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/danling.pc.in" "${PROJECT_BINARY_DIR}/danling.pc.generate" @ONLY)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/danling.pc" INPUT "${PROJECT_BINARY_DIR}/danling.pc.generate" TARGET danling)
  install(FILES "${PROJECT_BINARY_DIR}/danling.pc" DESTINATION "${folder}")
endfunction()

function(danling_install)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/danling")
  get_target_property(type danling TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    set(danling_is_shared ON)
  else()
    set(danling_is_shared OFF)
  endif()
  # Set explicitly, since INSTALL_RPATH_USE_LINK_PATH omits a LibTorch inside the source tree, as in .deps/.
  set(danling_torch_root "${TORCH_INSTALL_PREFIX}")
  set(danling_install_use_link_path ON)
  if(DANLING_INSTALL_TORCH)
    set(danling_torch_root "${DANLING_INSTALL_TORCH}")
    set(danling_install_use_link_path OFF)
  endif()
  set(danling_install_rpath "${danling_torch_root}/lib")
  set(danling_install_rpath "${danling_install_rpath}" PARENT_SCOPE)
  set(danling_install_use_link_path "${danling_install_use_link_path}" PARENT_SCOPE)
  set(danling_origin "$ORIGIN")
  if(APPLE)
    set(danling_origin "@loader_path")
  endif()
  set(danling_origin "${danling_origin}" PARENT_SCOPE)
  set_target_properties(danling PROPERTIES INSTALL_RPATH "${danling_origin};${danling_install_rpath}"
    INSTALL_RPATH_USE_LINK_PATH "${danling_install_use_link_path}")

  # The config finds a LibTorch inside the prefix by its relative path, any other by its absolute path.
  file(RELATIVE_PATH danling_torch_relative "${CMAKE_INSTALL_PREFIX}" "${danling_torch_root}")
  if(danling_torch_relative MATCHES "^\\.\\.")
    set(danling_torch_relative "")
  endif()

  foreach(name IN ITEMS IMAGES TABLES ARCHIVES)
    set(danling_has_${name} FALSE)
    if(DANLING_WITH_${name})
      set(danling_has_${name} TRUE)
    endif()
  endforeach()
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/danlingConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/danlingConfig.cmake" INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/danlingConfigVersion.cmake" COMPATIBILITY SameMinorVersion)

  install(TARGETS danling EXPORT danling)
  install(EXPORT danling FILE danlingTargets.cmake NAMESPACE danling:: DESTINATION "${package_dir}")
  # So that -Ddanling_DIR=<build tree> serves a project without an installation.
  export(EXPORT danling FILE "${PROJECT_BINARY_DIR}/danlingTargets.cmake" NAMESPACE danling::)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/DanlingRunner.cmake" "${PROJECT_BINARY_DIR}/DanlingRunner.cmake" COPYONLY)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/danling" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp")
  install(FILES "${PROJECT_BINARY_DIR}/danlingConfig.cmake" "${PROJECT_BINARY_DIR}/danlingConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/DanlingRunner.cmake"
    DESTINATION "${package_dir}")
  danling_install_pkg_config()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
    "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  # Beside each other, as the links between the pages expect.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    PATTERN Doxyfile EXCLUDE)
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/fetch_libtorch.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/danling")
endfunction()
