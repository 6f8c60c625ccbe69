# cpack makes danling-<version>-<system>-<processor>.tar.gz and, where dpkg is, danling_<version>_<architecture>.deb.
# Configure with -DDANLING_INSTALL_TORCH=/opt/libtorch: a package must not name a directory of the machine that built it.

set(CPACK_PACKAGE_NAME danling)
set(CPACK_PACKAGE_VENDOR "danling")
set(CPACK_PACKAGE_CONTACT "The authors of danling")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
  "A C++20 library for training with LibTorch, its headers, and the command danling. Needs LibTorch in ${danling_install_rpath}, or on LD_LIBRARY_PATH.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME "danling-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_GENERATOR TGZ)
find_program(DANLING_DPKG_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(DANLING_DPKG_SHLIBDEPS)
if(DANLING_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, python3-pip")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# dpkg-shlibdeps fails on LibTorch, which no Debian package has, so it is called apart.
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/DanlingDebian.cmake")
set(CPACK_DANLING_DPKG_SHLIBDEPS "${DANLING_DPKG_SHLIBDEPS}")
set(CPACK_DANLING_TORCH_LIBRARIES "${TORCH_INSTALL_PREFIX}/lib")
include(CPack)
