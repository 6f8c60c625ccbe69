# Build settings for danling as the top-level project; a project that adds danling keeps its own settings.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(DANLING_CCACHE ccache)
  mark_as_advanced(DANLING_CCACHE)
  if(DANLING_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${DANLING_CCACHE}")
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # or ccache refuses precompiled headers
  endif()
endif()

if(NOT "${CMAKE_EXE_LINKER_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}" MATCHES "-fuse-ld=")
  find_program(DANLING_MOLD mold)
  mark_as_advanced(DANLING_MOLD)
  if(DANLING_MOLD)
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=mold DANLING_LINKS_WITH_MOLD)
    if(DANLING_LINKS_WITH_MOLD)
      add_link_options(-fuse-ld=mold)
    endif()
  endif()
endif()

if(DANLING_SANITIZE)
  add_compile_options(-fsanitize=${DANLING_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DANLING_SANITIZE})
  # Instrumented code makes g++ warn falsely (documented in its manual).
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

if(DANLING_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "danling: DANLING_FUZZ needs clang, got ${CMAKE_CXX_COMPILER}. Set CMAKE_CXX_COMPILER, or run ./dev fuzz.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
