# The copy of spdlog in the library shares no name with that of a program, which may be of another version.
string(REPLACE ":" ";" objects "${objects}")
execute_process(COMMAND "${nm}" ${objects} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
if(names MATCHES "[^\n]*6spdlog[^\n]*")
  message(FATAL_ERROR "expected spdlog in the namespace danling_spdlog, got ${CMAKE_MATCH_0}")
endif()
if(NOT names MATCHES "14danling_spdlog")
  message(FATAL_ERROR "expected names of the namespace danling_spdlog in the objects of telemetry, got none")
endif()
