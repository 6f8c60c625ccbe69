# Finds LibTorch and checks its version before anything is compiled.

set(danling_torch_oldest 2.11)
set(danling_torch_tested 2.13)

# A LibTorch with CUDA needs the CUDA toolkit; without this check CMake fails later with an unclear message.
function(danling_check_cuda_toolkit)
  find_file(DANLING_TORCH_CONFIG TorchConfig.cmake NO_CACHE HINTS "${Torch_DIR}" "$ENV{Torch_DIR}"
    PATH_SUFFIXES share/cmake/Torch Torch)
  get_filename_component(root "${DANLING_TORCH_CONFIG}/../../../.." ABSOLUTE)
  if(NOT DANLING_TORCH_CONFIG OR NOT EXISTS "${root}/lib/libtorch_cuda.so")
    set(danling_torch_cuda OFF PARENT_SCOPE)
    return()
  endif()
  set(danling_torch_cuda ON PARENT_SCOPE)
  find_program(nvcc nvcc NO_CACHE HINTS "${CUDAToolkit_ROOT}" "${CUDA_TOOLKIT_ROOT_DIR}" "$ENV{CUDAToolkit_ROOT}"
    "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" PATHS /usr/local/cuda PATH_SUFFIXES bin)
  # CMake and LibTorch's own files look for it in fewer places.
  if(nvcc AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${nvcc}")
  endif()
  if(nvcc AND NOT DEFINED ENV{CUDA_PATH})
    get_filename_component(toolkit "${nvcc}/../.." ABSOLUTE)
    set(ENV{CUDA_PATH} "${toolkit}")
  endif()
  if(NOT nvcc)
    message(FATAL_ERROR "danling: the LibTorch in ${root} is built for CUDA and needs the CUDA toolkit (nvcc), which "
      "was not found. Install the toolkit and set CUDA_HOME, or give a CPU LibTorch by CMAKE_PREFIX_PATH.")
  endif()
endfunction()

danling_check_cuda_toolkit()
# Hides the wheel's warning "library kineto not found": libtorch_cpu.so already contains that static library.
set(danling_message_level "${CMAKE_MESSAGE_LOG_LEVEL}")
if(NOT danling_torch_cuda)
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
endif()
find_package(Torch QUIET)
set(CMAKE_MESSAGE_LOG_LEVEL "${danling_message_level}")

if(NOT Torch_FOUND)
  message(FATAL_ERROR "danling: LibTorch was not found. Give its directory by CMAKE_PREFIX_PATH, or run ./dev build, "
    "which finds or fetches one.")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" danling_torch_version "${Torch_VERSION}")
if(Torch_VERSION VERSION_LESS danling_torch_oldest)
  message(FATAL_ERROR "danling: expected LibTorch ${danling_torch_oldest} or newer, got ${Torch_VERSION} in ${Torch_DIR}. "
    "Install torch ${danling_torch_tested} or give its directory by CMAKE_PREFIX_PATH.")
elseif(danling_torch_version VERSION_EQUAL danling_torch_tested)
  message(STATUS "danling: LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")
elseif(danling_torch_version VERSION_LESS danling_torch_tested)
  message(NOTICE "danling: LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX} is accepted but untested "
    "(tested: ${danling_torch_tested})")
else()
  message(WARNING "danling: LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX} is newer than the tested "
    "${danling_torch_tested}; it may not build.")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/DanlingRunner.cmake")
danling_drop_absent_directories()
