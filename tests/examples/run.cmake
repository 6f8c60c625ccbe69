# cmake -Dcommand=<list> -Ddirectory=<directory> -Dpattern=<regular expression> -P run.cmake: runs the command in a new
# directory; fails unless it succeeds and its output matches.
file(REMOVE_RECURSE "${directory}")
file(MAKE_DIRECTORY "${directory}")
execute_process(COMMAND ${command} WORKING_DIRECTORY "${directory}" RESULT_VARIABLE result OUTPUT_VARIABLE output
  ERROR_VARIABLE errors)
if(NOT result EQUAL 0 OR NOT output MATCHES "${pattern}")
  message(FATAL_ERROR "${command}\nexpected 0 and ${pattern}\ngot ${result} and\n${output}\n${errors}")
endif()
