# Installs danling with its pages, moves it, builds a program elsewhere that finds it, and LibTorch, by its place alone,
# and runs the installed command.
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

# The command finds its libraries from where it was moved to.
if(command)
  run("${work}/moved/${command}" --version)
  if(NOT output STREQUAL "danling ${version}\n")
    message(FATAL_ERROR "expected danling ${version}, got ${output}")
  endif()
  run("${work}/moved/${command}" ckpt verify "${source}/tests/golden/data/safetensors_tied.safetensors")
endif()
