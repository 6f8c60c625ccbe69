# Modules: the folders of src/ are compiled once as objects, which danling_library() collects.

add_library(danling_flags INTERFACE)
target_compile_features(danling_flags INTERFACE cxx_std_20)
target_compile_options(danling_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Woverloaded-virtual
  $<$<BOOL:${DANLING_WERROR}>:-Werror>)
target_compile_definitions(danling_flags INTERFACE FMT_HEADER_ONLY)
# By default g++ collects garbage above 128 MB, in a tenth of its time.
set(danling_compiler_memory $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2500000>)
target_compile_options(danling_flags INTERFACE ${danling_compiler_memory})
# For code that runs in no step: where the build type has -O3, -O1, which takes two thirds of the time to compile. The
# others make most of its loops as fast as -O3 does, nearly for free.
set(danling_rare_options "")
if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")  # else the user has chosen another level
  set(danling_rare_options -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND danling_rare_options -ftree-vectorize -fvect-cost-model=dynamic -finline-small-functions -fstrict-aliasing)
  endif()
  list(TRANSFORM danling_rare_options REPLACE "(.+)" "$<$<CONFIG:Release>:\\1>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns falsely about overlapping copies inside std::string (GCC bug 105651).
  target_compile_options(danling_flags INTERFACE -Wno-restrict)
endif()

foreach(list IN ITEMS modules objects_fast objects_others links)
  set_property(GLOBAL PROPERTY danling_${list} "")
endforeach()

# danling_module(<name> [TORCH] [FAST <source>...] [LINK <library>...] [HEADERS <library>...] [DEFINES <definition>...]
#   [EXCLUDE <source>...])
# TORCH: its sources include LibTorch, whose headers cost each unit seconds: they share units with the other such modules.
# FAST: the sources that run in each step of a process, or for each element of a file or tensor, and are slower without the
# optimization of the build type. They keep it; the others get danling_rare_options. EXCLUDE: sources that this build leaves
# out. Sources are relative to the module.
function(danling_module name)
  if(DANLING_MODULES AND NOT name IN_LIST DANLING_MODULES)
    return()
  endif()
  cmake_parse_arguments(arg "TORCH" "" "FAST;LINK;HEADERS;DEFINES;EXCLUDE" ${ARGN})
  set(root "${PROJECT_SOURCE_DIR}/src/${name}")
  file(GLOB_RECURSE others CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.cpp")
  set(fast ${arg_FAST})
  foreach(source IN LISTS fast)
    if(NOT EXISTS "${root}/${source}")
      message(FATAL_ERROR "danling_module: expected a source of src/${name} in FAST, got ${source}")
    endif()
  endforeach()
  list(REMOVE_ITEM fast ${arg_EXCLUDE})
  list(REMOVE_ITEM others ${arg_EXCLUDE} ${fast})
  list(TRANSFORM fast PREPEND "${root}/")
  list(TRANSFORM others PREPEND "${root}/")

  if(arg_TORCH)
    set(name torch)
    list(APPEND arg_HEADERS torch)
  endif()
  foreach(list IN ITEMS fast others)
    set_property(GLOBAL APPEND PROPERTY danling_${name}_${list} ${${list}})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY danling_${name}_libraries ${arg_LINK} ${arg_HEADERS})
  set_property(GLOBAL APPEND PROPERTY danling_${name}_defines ${arg_DEFINES})
  set_property(GLOBAL APPEND PROPERTY danling_links ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY danling_modules ${name})
endfunction()

# danling_objects(<module> fast|others): compiles the part, if it has sources.
function(danling_objects name part)
  foreach(list IN ITEMS ${part} libraries defines)
    get_property(${list} GLOBAL PROPERTY danling_${name}_${list})
  endforeach()
  if(NOT ${part})
    return()
  endif()
  set(target danling_${name})
  if(part STREQUAL "fast")
    set(target danling_${name}_fast)
  endif()
  list(REMOVE_DUPLICATES libraries)
  add_library(${target} OBJECT ${${part}})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} PRIVATE danling_flags ${libraries})
  target_compile_definitions(${target} PRIVATE DANLING_SOURCES ${defines})
  # So that sums are the same where the user allows instructions that fuse products into them.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  # Allows g++ to inline functions of the shared library, since no program replaces single ones.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  if(DANLING_UNITY)
    # Units of equal size, up to 90 sources: each takes up to 3.5 GB of memory, most of it for LibTorch's headers.
    list(LENGTH ${part} size)
    math(EXPR units "(${size} + 89) / 90")
    math(EXPR size "(${size} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # An anonymous namespace in an included file is harmless if that file is a source.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(part STREQUAL "others")
    target_compile_options(${target} PRIVATE ${danling_rare_options})
  endif()
  set_property(GLOBAL APPEND PROPERTY danling_objects_${part} $<TARGET_OBJECTS:${target}>)
endfunction()

function(danling_library)
  # Ninja compiles in this order. The large units come first, so that no core waits long for one of them at the end.
  get_property(modules GLOBAL PROPERTY danling_modules)
  list(REMOVE_DUPLICATES modules)
  list(REMOVE_ITEM modules torch)
  foreach(module IN ITEMS torch ${modules})
    danling_objects(${module} others)
    danling_objects(${module} fast)
  endforeach()
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
