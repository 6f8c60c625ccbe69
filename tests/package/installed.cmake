# Installs danling with its pages, moves it, builds a program elsewhere that finds it, and LibTorch, by its place alone, installs that
# program, builds it by pkg-config too, and runs the installed command.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

file(REMOVE_RECURSE "${work}")
run("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/staged")
file(RENAME "${work}/staged" "${work}/moved")

file(GLOB_RECURSE configs "${work}/moved/*.cmake")
foreach(config IN LISTS configs)
  file(READ "${config}" text)
  foreach(path IN ITEMS "${source}" "${build}" "${work}")
    string(FIND "${text}" "${path}/" found)
    if(NOT found EQUAL -1 AND NOT torch_root MATCHES "^${path}/")
      message(FATAL_ERROR "${config} names ${path}, which need not exist where the package is used")
    endif()
  endforeach()
endforeach()

foreach(page IN ITEMS README.md docs/guide.md docs/config.md examples/quickstart/main.cpp)
  if(NOT EXISTS "${work}/moved/share/doc/danling/${page}")
    message(FATAL_ERROR "expected share/doc/danling/${page} in the package, found none")
  endif()
endforeach()

set(include "${work}/moved/include")
build_consumer("${CMAKE_CURRENT_LIST_DIR}/consumer" "${work}/build" "-DCMAKE_PREFIX_PATH=${work}/moved")

# The installed program finds its libraries.
run("${CMAKE_COMMAND}" --install "${work}/build" --prefix "${work}/program")
run("${work}/program/bin/consumer")
expect_output()

# Targets with equal options and headers share a precompiled header; definitions of their own do not matter.
file(READ "${work}/build/compile_commands.json" commands)
foreach(name IN ITEMS first second with_option with_pie narrow)
  if(NOT commands MATCHES "(danling_precompiled_[0-9a-f]+)\\.dir/[^ ]* [^\n]*CMakeFiles/precompiled_${name}\\.dir")
    message(FATAL_ERROR "expected precompiled_${name} to use a precompiled header, got\n${commands}")
  endif()
  set(${name} "${CMAKE_MATCH_1}")
endforeach()
if(NOT first STREQUAL second OR first STREQUAL with_option OR first STREQUAL with_pie OR with_option STREQUAL with_pie
    OR first STREQUAL narrow)
  message(FATAL_ERROR "expected first and second to share a header, got ${first} ${second} ${with_option} ${with_pie} ${narrow}")
endif()

# The same program without CMake, from a second place: danling.pc names no directory of its own.
if(pkg_config)
  file(RENAME "${work}/moved" "${work}/again")
  file(GLOB_RECURSE pc "${work}/again/danling.pc")
  get_filename_component(folder "${pc}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${folder}")
  run("${pkg_config}" --modversion danling)
  if(NOT output STREQUAL "${version}\n")
    message(FATAL_ERROR "expected ${version} of pkg-config, got ${output}")
  endif()
  run("${pkg_config}" --cflags --libs danling)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${launcher} "${compiler}" -std=c++20 -Wall -Wextra -Werror "${CMAKE_CURRENT_LIST_DIR}/consumer/main.cpp" ${flags}
    -o "${work}/by_pkg_config")
  run("${work}/by_pkg_config")
  expect_output()
  file(RENAME "${work}/again" "${work}/moved")
endif()

# The command finds its libraries from where it was moved to.
if(command)
  run("${work}/moved/${command}" --version)
  if(NOT output STREQUAL "danling ${version}\n")
    message(FATAL_ERROR "expected danling ${version}, got ${output}")
  endif()
  run("${work}/moved/${command}" ckpt verify "${source}/tests/golden/data/safetensors_tied.safetensors")
endif()
