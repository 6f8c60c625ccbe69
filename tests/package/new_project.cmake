# Makes a project by `danling new`, builds it against the build tree, runs its tests, trains, stops and resumes. Then what
# the command refuses.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")

# new(<argument>...): the command in the test's directory; leaves `result`, `output` and `errors`.
function(new)
  execute_process(COMMAND "${command}" new ${ARGV} WORKING_DIRECTORY "${work}" RESULT_VARIABLE result
    OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  foreach(name IN ITEMS result output errors)
    set(${name} "${${name}}" PARENT_SCOPE)
  endforeach()
endfunction()

# refuse(<text> <argument>...): the command ends with 2 and one line, and writes nothing.
function(refuse text)
  file(GLOB_RECURSE before LIST_DIRECTORIES ON "${work}/*")
  new(${ARGN})
  file(GLOB_RECURSE after LIST_DIRECTORIES ON "${work}/*")
  if(NOT result EQUAL 2 OR NOT errors STREQUAL "[danling new] ${text}\n" OR NOT output STREQUAL "")
    message(FATAL_ERROR "new ${ARGN}: expected 2 and\n[danling new] ${text}\ngot ${result} and\n${errors}${output}")
  endif()
  if(NOT before STREQUAL after)
    message(FATAL_ERROR "new ${ARGN}: expected no new files, got ${after}")
  endif()
endfunction()

set(name "a-model_2")
new(${name})
set(commands "cd ${name}
cmake -B build -Ddanling_DIR=${build}
cmake --build build
ctest --test-dir build --output-on-failure
./build/${name} --config config.yaml
")
string(FIND "${output}" "${commands}" found)
if(NOT result EQUAL 0 OR found EQUAL -1 OR NOT output MATCHES "^${name}: [0-9]+ files of the template mlp\n")
  message(FATAL_ERROR "new ${name}: expected 0 and the next commands\n${commands}got ${result}\n${errors}${output}")
endif()
file(GLOB_RECURSE files "${work}/${name}/*")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  if(text MATCHES "@[A-Z]+@")
    message(FATAL_ERROR "${file} has the placeholder ${CMAKE_MATCH_0}")
  endif()
endforeach()

# build(<project> <build option>...): the printed commands, with the generator, compiler and cache of this build.
function(build project)
  run("${CMAKE_COMMAND}" -S "${work}/${project}" -B "${work}/${project}/build" "-Ddanling_DIR=${build}" -G "${generator}"
    -DCMAKE_MAKE_PROGRAM=${make_program} -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}
    -DCMAKE_BUILD_TYPE=${build_type} -DCMAKE_CXX_FLAGS=-Werror)
  if(NOT errors STREQUAL "")
    message(FATAL_ERROR "Configuring ${project} warned:\n${errors}")
  endif()
  run("${CMAKE_COMMAND}" --build "${work}/${project}/build" ${ARGN})
endfunction()

# test(<project> <number> <ctest option>...): so many tests pass.
function(test project number)
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/${project}/build" --output-on-failure ${ARGN})
  if(NOT output MATCHES "100% tests passed, 0 tests failed out of ${number}\n")
    message(FATAL_ERROR "expected ${number} tests of ${project} that pass, got\n${output}")
  endif()
endfunction()

set(project "${work}/${name}")
set(binary "${project}/build")
build(${name})
test(${name} 3)
# Of the other template what costs least.
file(MAKE_DIRECTORY "${work}/other")  # an empty directory may exist
new(pictures --template images --output other)
build(other --target pictures_tests)
test(other 2 -E program)

# train(<argument>...): the program with the project's config.
macro(train)
  run("${CMAKE_COMMAND}" -E chdir "${project}" "${binary}/${name}" --config config.yaml --num_threads 1 ${ARGN})
endmacro()
train()
if(NOT output MATCHES "val [^\n]* (0[.]9[0-9]*|1[.]0000) [^\n]*\n[^\n]*\nrun: experiments/")
  message(FATAL_ERROR "expected a validation accuracy of at least 0.9 in the last table, got\n${output}")
endif()
train(--auto_resume true --epochs 32)
if(NOT output MATCHES "epoch 31/32" OR output MATCHES "epoch 30/32")
  message(FATAL_ERROR "expected the run to resume with epoch 31, got\n${output}")
endif()

refuse("expected a directory that is empty or does not exist, got '${name}'; nothing was written" ${name})
file(WRITE "${work}/file" "")
refuse("expected a directory that is empty or does not exist, got 'file'; nothing was written" x --output file)
foreach(bad IN ITEMS 2d a/b "a b" ü)
  refuse("expected a name of at most 64 letters, digits, '_' and '-' that begins with a letter, got '${bad}'" "${bad}")
endforeach()
refuse("expected another name than 'test', which is a target of CMake or a library" test)
refuse("expected one of the templates images, mlp, got 'mpl'; did you mean 'mlp'?" x --template mpl)
refuse("expected a name, got 0 arguments; --help shows the usage")
