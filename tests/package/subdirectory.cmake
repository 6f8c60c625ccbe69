# Builds danling inside another project, as a static library there; then installs that and uses it as a package.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(include "${source}/include")
build_consumer("${CMAKE_CURRENT_LIST_DIR}/subdirectory" "${work}/build" "-DDANLING_SOURCE_DIR=${source}"
  "-DTorch_DIR=${torch_root}/share/cmake/Torch")

file(REMOVE_RECURSE "${work}/static" "${work}/static-build")
run("${CMAKE_COMMAND}" --install "${work}/build" --prefix "${work}/static")
file(GLOB archive "${work}/static/lib*/libdanling.a" "${work}/static/lib/*/libdanling.a")
if(NOT archive)
  message(FATAL_ERROR "expected libdanling.a in ${work}/static")
endif()
set(include "${work}/static/include")
build_consumer("${CMAKE_CURRENT_LIST_DIR}/consumer" "${work}/static-build" "-DCMAKE_PREFIX_PATH=${work}/static")
