# An overlay port: builds the sources that it lies in. vcpkg's own libtorch is older than 2.11, so LibTorch comes from
# Torch_DIR of the environment (VCPKG_KEEP_ENV_VARS=Torch_DIR).

get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if("$ENV{Torch_DIR}" STREQUAL "")
  message(FATAL_ERROR "danling: expected the directory of TorchConfig.cmake in Torch_DIR, got nothing. Set Torch_DIR and "
    "VCPKG_KEEP_ENV_VARS=Torch_DIR.")
endif()

string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "dynamic" shared)
vcpkg_check_features(OUT_FEATURE_OPTIONS features
  FEATURES
    images DANLING_WITH_IMAGES
    tables DANLING_WITH_TABLES
    archives DANLING_WITH_ARCHIVES
    command DANLING_BUILD_APPS
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${features}
    -DBUILD_SHARED_LIBS=${shared}
    -DDANLING_BUILD_TESTS=OFF
    -DDANLING_BUILD_EXAMPLES=OFF
    -DDANLING_BUILD_BENCH=OFF
    "-DTorch_DIR=$ENV{Torch_DIR}"
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/danling)
vcpkg_fixup_pkgconfig()
if("command" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES danling AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
