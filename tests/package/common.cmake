# Functions of the package tests, each of which runs as: cmake -D<name>=<value>... -P <test>.cmake

# run(<command>...): fails with the command's output unless it succeeds; leaves its output in `output`. The environment
# names no LibTorch, so that one is found by the package alone.
function(run)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=CMAKE_PREFIX_PATH --unset=Torch_DIR --unset=Torch_ROOT
    --unset=CXXFLAGS --unset=LDFLAGS ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\nended with ${result}:\n${out}\n${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
  set(errors "${err}" PARENT_SCOPE)
endfunction()

# build_consumer(<source> <binary> [<cache option>...]): configures without a warning, builds, runs, compares the output.
macro(build_consumer source binary)
  run("${CMAKE_COMMAND}" -S "${source}" -B "${binary}" -G "${generator}" -DCMAKE_MAKE_PROGRAM=${make_program}
    -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher} -DCMAKE_BUILD_TYPE=${build_type} ${ARGN})
  if(NOT errors STREQUAL "")
    message(FATAL_ERROR "Configuring ${source} warned:\n${errors}")
  endif()
  run("${CMAKE_COMMAND}" --build "${binary}" --parallel 1 --target consumer)
  run("${binary}/consumer")
  expect_output()
  check_flags("${binary}" ${include})
endmacro()

# check_flags(<binary> <include directory>): danling::danling adds its include directory to the command line of LibTorch
# alone, and nothing else.
function(check_flags binary include)
  file(READ "${binary}/compile_commands.json" commands)
  string(JSON last LENGTH "${commands}")
  math(EXPR last "${last} - 1")
  foreach(i RANGE ${last})
    string(JSON command GET "${commands}" ${i} command)
    if(command MATCHES "CMakeFiles/(consumer|baseline)\\.dir")
      set(target ${CMAKE_MATCH_1})
      string(REGEX REPLACE " -o .*" "" ${target} "${command}")
      foreach(option IN ITEMS "-isystem " "-I")
        string(REPLACE "${option}${include} " "" ${target} "${${target}}")
        string(REPLACE "${option}\"${include}\" " "" ${target} "${${target}}")  # where the path has spaces
      endforeach()
      string(REGEX REPLACE "  +" " " ${target} "${${target}}")
    endif()
  endforeach()
  if(NOT consumer STREQUAL baseline)
    message(FATAL_ERROR "expected the flags of LibTorch alone\n${baseline}\ngot\n${consumer}")
  endif()
endfunction()

# expect_output(): `output` is the consumer's.
function(expect_output)
  set(expected "danling ${version} on cpu\ncaught danling::DataError\n")
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "expected the program to print\n${expected}got\n${output}")
  endif()
endfunction()
