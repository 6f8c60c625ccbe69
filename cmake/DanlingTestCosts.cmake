# Durations of tests: ctest starts the longest tests first, so that none runs alone at the end.

# Seconds on two cores, for tests that take ten or more.
set(danling_test_costs reliability=150 runner_old_cpu=130 runner_ranks=120 runner=120 distributed=110 parallel=100
  apps=70 integration=60 package_components=60 launch=45 package_subdirectory=40 supervise=36 bench_steps=33 verify_resume_layouts=32 checkpoint=25 telemetry=25
  compile_errors=20 metrics=20 metrics_old_cpu=20
  formats=20 verify_resume_everything=18 verify_resume_epochs=18 verify_resume_steps=18 verify_resume_models=18
  verify_resume_processes=16 verify_resume_nested=14 optim=12 optim_old_cpu=12 optim_default=12 optim_avx2=10)

# Tests that mostly wait, for timeouts and for processes that they start. The others count as two jobs: with the jobs of
# run_ctest in ./dev, ctest runs a computing test on each core and a waiting one beside them.
set(danling_waiting_tests distributed parallel runner runner_ranks launch supervise reliability verify_resume_layouts
  verify_resume_processes)

# danling_test_costs(): sets the costs of the tests in this directory. Call it after adding all tests.
function(danling_test_costs)
  get_property(tests DIRECTORY PROPERTY TESTS)
  set(computing ${tests})
  list(REMOVE_ITEM computing ${danling_waiting_tests})
  if(computing)
    set_tests_properties(${computing} PROPERTIES PROCESSORS 2)
  endif()
  foreach(item IN LISTS danling_test_costs)
    string(REGEX MATCH "^(.*)=(.*)$" item "${item}")
    if(CMAKE_MATCH_1 IN_LIST tests)
      set_tests_properties(${CMAKE_MATCH_1} PROPERTIES COST ${CMAKE_MATCH_2})
    endif()
  endforeach()
endfunction()
