# The project of subdirectory.cmake, with danling by FetchContent. Configures only: the sources are the same.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

file(REMOVE_RECURSE "${work}")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/subdirectory" -B "${work}" -G "${generator}"
  -DCMAKE_MAKE_PROGRAM=${make_program} -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_BUILD_TYPE=${build_type}
  "-DDANLING_SOURCE_DIR=${source}" "-DTorch_DIR=${torch_root}/share/cmake/Torch" -DBY_FETCH_CONTENT=ON)
if(NOT errors STREQUAL "")
  message(FATAL_ERROR "Configuring warned:\n${errors}")
endif()
file(READ "${work}/compile_commands.json" commands)
if(NOT commands MATCHES "-I${source}/include [^\n]*CMakeFiles/consumer\\.dir")
  message(FATAL_ERROR "expected the program to be compiled with danling's headers, got\n${commands}")
endif()
