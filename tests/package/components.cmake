# Builds danling without readers of images, tables and archives, shared and static: what the library links, what it
# refuses, and which components its package has.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(expected
"[formats.image] expected a library that decodes images, got one built without libjpeg and libpng: build danling with -DDANLING_WITH_IMAGES=ON
[data.csv] expected a library that reads tables, got one built without: build danling with -DDANLING_WITH_TABLES=ON to read table.csv
[data.json] expected a library that reads tables, got one built without: build danling with -DDANLING_WITH_TABLES=ON to read table.jsonl
[formats.tar] expected a library that reads TAR archives, got one built without: build danling with -DDANLING_WITH_ARCHIVES=ON to read shard.tar
")

# expect_program(<program>): it prints the four errors.
function(expect_program program)
  run("${program}")
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "expected ${program} to print\n${expected}got\n${output}")
  endif()
endfunction()

set(binary "${work}/build")
foreach(shared IN ITEMS OFF ON)  # with the same objects
  run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/small" -B "${binary}" -G "${generator}"
    -DCMAKE_MAKE_PROGRAM=${make_program} -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}
    -DCMAKE_BUILD_TYPE=${build_type} "-DDANLING_SOURCE_DIR=${source}" "-DTorch_DIR=${torch_root}/share/cmake/Torch"
    -DBUILD_SHARED_LIBS=${shared})
  run("${CMAKE_COMMAND}" --build "${binary}" --parallel 1 --target small danling)
  expect_program("${binary}/small")

  # Neither the libraries of images nor the readers are in it.
  file(READ "${binary}/library.txt" library)
  run("${nm}" --undefined-only --demangle "${library}")
  if(output MATCHES "U ((jpeg|png)_[a-z_]+)")
    message(FATAL_ERROR "expected ${library} to need no library of images, got ${CMAKE_MATCH_0}")
  endif()
  run("${nm}" --defined-only --demangle "${library}")
  if(output MATCHES "(CsvRows|JsonRows|decode_jpeg|decode_png)[^\n]*")
    message(FATAL_ERROR "expected no readers in ${library}, got ${CMAKE_MATCH_0}")
  endif()
endforeach()

# Its package refuses the components that it lacks.
run("${CMAKE_COMMAND}" --install "${binary}" --prefix "${work}/prefix")
# expect_refusal(<component> <text>)
function(expect_refusal component text)
  file(WRITE "${work}/find.cmake" "find_package(danling REQUIRED COMPONENTS core ${component})\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DCMAKE_PREFIX_PATH=${work}/prefix" -P "${work}/find.cmake"
    OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "expected\n${text}\ngot\n${said}")
  endif()
endfunction()
foreach(component IN ITEMS images tables archives)
  string(TOUPPER ${component} option)
  expect_refusal(${component}
    "This danling was built without ${component}. Build danling with -DDANLING_WITH_${option}=ON.")
endforeach()
expect_refusal(videos "danling has the components core, images, tables and archives, got videos.")
