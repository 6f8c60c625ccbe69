# Writes the files of `danling new` as string literals to OUTPUT. Each directory of FOLDER but `common` is a template:
# its files and those of `common`. about.txt has its description. A name's `dot_` stands for a dot.
set(delimiter "danling_template")

# read_literal(<variable> <file>)
function(read_literal out file)
  file(READ "${file}" text)
  string(FIND "${text}" ")${delimiter}\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "expected ${file} without )${delimiter}\", got it")
  endif()
  set(${out} "R\"${delimiter}(${text})${delimiter}\"" PARENT_SCOPE)
endfunction()

# append_files(<variable> <directory>): one initializer for each file.
function(append_files out directory)
  file(GLOB_RECURSE names RELATIVE "${directory}" "${directory}/*")
  list(SORT names)
  set(all "${${out}}")
  foreach(name IN LISTS names)
    if(NOT name STREQUAL "about.txt")
      read_literal(text "${directory}/${name}")
      string(REGEX REPLACE "(^|/)dot_" "\\1." path "${name}")
      string(APPEND all "        {\"${path}\",\n${text}},\n")
    endif()
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

set(templates "")
file(GLOB folders RELATIVE "${FOLDER}" "${FOLDER}/*")
list(SORT folders)
foreach(name IN LISTS folders)
  if(NOT name STREQUAL "common")
    file(READ "${FOLDER}/${name}/about.txt" about)
    string(STRIP "${about}" about)
    set(files "")
    append_files(files "${FOLDER}/common")
    append_files(files "${FOLDER}/${name}")
    string(APPEND templates "    {\"${name}\", \"${about}\", {\n${files}    }},\n")
  endif()
endforeach()
file(WRITE "${OUTPUT}" "// Written by cmake/EmbedTemplates.cmake.
#include \"template_files.hpp\"

namespace danling_command {

const std::vector<ProjectTemplate>& project_templates() {
  static const std::vector<ProjectTemplate> all = {
${templates}  };
  return all;
}

}  // namespace danling_command
")
