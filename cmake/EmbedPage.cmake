# Writes page.html, page.css and *.js of FOLDER as string literals to OUTPUT; concatenates the scripts by name.
function(read_literal out)
  set(text "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" content)
    string(APPEND text "${content}")
  endforeach()
  set(delimiter "danling_page")
  string(FIND "${text}" ")${delimiter}\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "expected files of ${FOLDER} without )${delimiter}\", got one")
  endif()
  set(${out} "R\"${delimiter}(${text})${delimiter}\"" PARENT_SCOPE)
endfunction()

file(GLOB scripts "${FOLDER}/*.js")
list(SORT scripts)
read_literal(frame "${FOLDER}/page.html")
read_literal(style "${FOLDER}/page.css")
read_literal(script ${scripts})
file(WRITE "${OUTPUT}" "// Written by cmake/EmbedPage.cmake.
#include \"page_files.hpp\"

namespace danling_command {

const std::string_view page_frame = ${frame};
const std::string_view page_style = ${style};
const std::string_view page_script = ${script};

}  // namespace danling_command
")
