# cmake -Dprogram=<distillation> -Ddirectory=<directory> -P distillation.cmake: a teacher, a student with few labels, and
# one that has a teacher in place of labels; half as many updates as by default.
file(REMOVE_RECURSE "${directory}")
file(MAKE_DIRECTORY "${directory}")

# train(<name> <argument>...): sets <name> to the accuracy on the test images, in ten-thousandths.
function(train name)
  execute_process(COMMAND "${program}" --workspace_root ${name} --steps 600 ${ARGN}
    WORKING_DIRECTORY "${directory}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT result EQUAL 0 OR NOT output MATCHES "test [^\n]* ([01])[.]([0-9][0-9][0-9][0-9]) [^\n]*\n[^\n]*\nrun: ")
    message(FATAL_ERROR "${name}: expected 0 and a table, got ${result} and\n${output}\n${errors}")
  endif()
  math(EXPR accuracy "10000 * ${CMAKE_MATCH_1} + 1${CMAKE_MATCH_2} - 10000")
  set(${name} ${accuracy} PARENT_SCOPE)
endfunction()

train(teacher --role teacher)
file(GLOB weights "${directory}/teacher/*/*/checkpoints/model.pth")
train(alone --role student)
train(taught --role student --distill.checkpoint "${weights}")
math(EXPR gain "${taught} - ${alone}")
if(teacher LESS 9700 OR taught LESS 9000 OR gain LESS 500)
  message(FATAL_ERROR "expected a teacher that helps: teacher ${teacher}, student alone ${alone}, taught ${taught}")
endif()
message("test accuracy in ten-thousandths: teacher ${teacher}, student alone ${alone}, taught ${taught}")
