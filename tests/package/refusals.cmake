# Which LibTorch is refused, by the build and by the installed package, and in what words.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

# fake_torch(<version>): a LibTorch that consists of its version.
function(fake_torch version)
  set(directory "${work}/torch-${version}/share/cmake/Torch")
  file(WRITE "${directory}/TorchConfig.cmake" "set(TORCH_INSTALL_PREFIX \"${work}/torch-${version}\")\n")
  file(WRITE "${directory}/TorchConfigVersion.cmake"
    "set(PACKAGE_VERSION ${version})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
endfunction()

# expect(<text> <cmake argument>...): cmake says `text`, wherever it breaks its lines.
function(expect text)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=CMAKE_PREFIX_PATH --unset=Torch_DIR --unset=Torch_ROOT
    "${CMAKE_COMMAND}" ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${text}" found)
  if(found EQUAL -1)
    message(SEND_ERROR "expected\n${text}\ngot\n${said}")
  endif()
endfunction()

file(REMOVE_RECURSE "${work}")
foreach(version IN ITEMS 2.10.1 2.12.0 2.13.4 2.14.0)
  fake_torch(${version})
endforeach()
set(finder "${source}/cmake/DanlingTorch.cmake")
expect("danling: expected LibTorch 2.11 or newer, got 2.10.1 in ${work}/torch-2.10.1/share/cmake/Torch."
  "-DTorch_DIR=${work}/torch-2.10.1/share/cmake/Torch" -P "${finder}")
expect("danling: LibTorch 2.12.0 in ${work}/torch-2.12.0 is accepted but untested (tested: 2.13)"
  "-DTorch_DIR=${work}/torch-2.12.0/share/cmake/Torch" -P "${finder}")
expect("-- danling: LibTorch 2.13.4 in ${work}/torch-2.13.4 "
  "-DTorch_DIR=${work}/torch-2.13.4/share/cmake/Torch" -P "${finder}")
expect("danling: LibTorch 2.14.0 in ${work}/torch-2.14.0 is newer than the tested 2.13; it may not build."
  "-DTorch_DIR=${work}/torch-2.14.0/share/cmake/Torch" -P "${finder}")
expect("danling: LibTorch was not found." "-DCMAKE_FIND_ROOT_PATH=${work}/nowhere"
  -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY -P "${finder}")

file(WRITE "${work}/torch-2.13.4/lib/libtorch_cuda.so" "")
expect("danling: the LibTorch in ${work}/torch-2.13.4 is built for CUDA and needs the CUDA toolkit (nvcc), which was not"
  "-DTorch_DIR=${work}/torch-2.13.4/share/cmake/Torch" "-DCMAKE_FIND_ROOT_PATH=${work}/nowhere"
  -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY -P "${finder}")

run("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/prefix")
file(WRITE "${work}/find.cmake" "find_package(danling REQUIRED)\n")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" built_with "${torch_version}")
set(other 2.12.0)
if(built_with STREQUAL "2.12")
  set(other 2.14.0)
endif()
expect("danling was built with LibTorch ${built_with}, got ${other} in ${work}/torch-${other}/share/cmake/Torch."
  "-DTorch_DIR=${work}/torch-${other}/share/cmake/Torch" "-DCMAKE_PREFIX_PATH=${work}/prefix" -P "${work}/find.cmake")

# Minor versions of 0.x are not compatible with each other.
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" minor "${version}")
math(EXPR next "${CMAKE_MATCH_2} + 1")
foreach(wrong IN ITEMS "${CMAKE_MATCH_1}.${next}" 1.0)
  file(WRITE "${work}/find.cmake" "find_package(danling ${wrong} REQUIRED)\n")
  expect("compatible with requested version \"${wrong}\"" "-DCMAKE_PREFIX_PATH=${work}/prefix" -P "${work}/find.cmake")
endforeach()
