# Modules: each folder of src/ is compiled once as objects, which danling_library() collects.

add_library(danling_flags INTERFACE)
target_compile_features(danling_flags INTERFACE cxx_std_20)
target_compile_options(danling_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Woverloaded-virtual
  $<$<BOOL:${DANLING_WERROR}>:-Werror>)
target_compile_definitions(danling_flags INTERFACE FMT_HEADER_ONLY)
# By default g++ collects garbage above 128 MB, in a tenth of its time; few units reach 2.5 GB.
set(danling_compiler_memory $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2500000>)
target_compile_options(danling_flags INTERFACE ${danling_compiler_memory})
# For code that runs in no step: where the build type has -O3, -O1, which takes two thirds of the time to compile.
set(danling_rare_level "")
if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")  # else the user has chosen another level
  set(danling_rare_level $<$<CONFIG:Release>:-O1>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns falsely about overlapping copies inside std::string (GCC bug 105651).
  target_compile_options(danling_flags INTERFACE -Wno-restrict)
endif()

set_property(GLOBAL PROPERTY danling_objects_fast "")
set_property(GLOBAL PROPERTY danling_objects_others "")
set_property(GLOBAL PROPERTY danling_links "")

# danling_module(<name> [TORCH] [FAST ALL|<source>...] [LINK <library>...] [HEADERS <library>...]
#   [DEFINES <definition>...] [EXCLUDE <source>...])
# FAST: the sources that run in each step of a process, or for each element of a file or tensor. They keep the optimization
# of the build type; the others get danling_rare_level. EXCLUDE: sources that this build leaves out. Sources are relative
# to the module.
function(danling_module name)
  if(DANLING_MODULES AND NOT name IN_LIST DANLING_MODULES)
    return()
  endif()
  cmake_parse_arguments(arg "TORCH" "" "FAST;LINK;HEADERS;DEFINES;EXCLUDE" ${ARGN})
  set(root "${PROJECT_SOURCE_DIR}/src/${name}")
  file(GLOB_RECURSE others CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.cpp")
  list(REMOVE_ITEM others ${arg_EXCLUDE})
  if(arg_FAST STREQUAL "ALL")
    set(fast ${others})
  else()
    set(fast ${arg_FAST})
    foreach(source IN LISTS fast)
      if(NOT EXISTS "${root}/${source}")
        message(FATAL_ERROR "danling_module: expected a source of src/${name} in FAST, got ${source}")
      endif()
    endforeach()
    list(REMOVE_ITEM fast ${arg_EXCLUDE})
  endif()
  list(REMOVE_ITEM others ${fast})

  foreach(part IN ITEMS fast others)
    if(NOT ${part})
      continue()
    endif()
    set(objects danling_${name})
    if(part STREQUAL "fast")
      set(objects danling_${name}_fast)
    endif()
    list(TRANSFORM ${part} PREPEND "${root}/")
    add_library(${objects} OBJECT ${${part}})
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
    target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${objects} PRIVATE danling_flags ${arg_LINK} ${arg_HEADERS})
    target_compile_definitions(${objects} PRIVATE DANLING_SOURCES ${arg_DEFINES})
    # Allows g++ to inline functions of the shared library, since no program replaces single ones.
    target_compile_options(${objects} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
    if(arg_TORCH)
      target_link_libraries(${objects} PRIVATE torch)
    endif()
    if(DANLING_UNITY)
      # Each unit takes 2 to 2.6 GB of memory, most of it for LibTorch's headers.
      set_target_properties(${objects} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 70)
      # An anonymous namespace in an included file is harmless if that file is a source.
      target_compile_options(${objects} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
    if(part STREQUAL "others")
      target_compile_options(${objects} PRIVATE ${danling_rare_level})
    endif()
    set_property(GLOBAL APPEND PROPERTY danling_objects_${part} $<TARGET_OBJECTS:${objects}>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY danling_links ${arg_LINK})
endfunction()

function(danling_library)
  # In a shared library, a function of a header that both have is linked from the first.
  get_property(fast GLOBAL PROPERTY danling_objects_fast)
  get_property(others GLOBAL PROPERTY danling_objects_others)
  get_property(links GLOBAL PROPERTY danling_links)
  list(REMOVE_DUPLICATES links)
  add_library(danling ${fast} ${others})
  add_library(danling::danling ALIAS danling)
  set_target_properties(danling PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(danling PUBLIC cxx_std_20)
  target_include_directories(danling PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:include>")
  target_link_libraries(danling PUBLIC torch PRIVATE ${links} Threads::Threads ${CMAKE_DL_LIBS})

  # libtorch.so of CUDA builds of 2.11 exports functions of std::filesystem that crash (remove_all), so programs must load
  # libstdc++ first.
  if(danling_torch_cuda AND Torch_VERSION VERSION_LESS danling_torch_tested AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_link_options(danling PUBLIC "LINKER:--push-state,--no-as-needed" -lstdc++ "LINKER:--pop-state")
  endif()

  # Exports only symbols of danling, not those of third-party code compiled into the library.
  get_target_property(type danling TYPE)
  if(type STREQUAL "SHARED_LIBRARY" AND NOT APPLE)
    set(script "${PROJECT_SOURCE_DIR}/cmake/danling.map")
    target_link_options(danling PRIVATE "-Wl,--version-script=${script}")
    set_target_properties(danling PROPERTIES LINK_DEPENDS "${script}")
  endif()
endfunction()

# Makes imported targets global: they are visible only in the directory that found them, but a project that adds danling
# links to them from a parent directory.
function(danling_share_imported_targets)
  get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS imported)
    set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL ON)
  endforeach()
endfunction()
