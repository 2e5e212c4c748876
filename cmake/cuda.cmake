# Decides about CUDA and its architectures. A working nvcc decides, never a visible GPU:
# the machine that builds is often not the one that runs.
#
# Sets WPNODE_WITH_CUDA (ON/OFF), WPNODE_CUDA_ARCHITECTURES (the list for build_info),
# and enables the CUDA language.

string(TOUPPER "${WPNODE_CUDA}" choice)
if(choice STREQUAL "")
  set(choice AUTO)
elseif(choice MATCHES "^(1|YES|TRUE)$")
  set(choice ON)
elseif(choice MATCHES "^(0|NO|FALSE)$")
  set(choice OFF)
endif()
if(NOT choice MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "`WPNODE_CUDA` must be AUTO, ON or OFF; got ${WPNODE_CUDA}.")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/cuda_architectures.cmake)

set(WPNODE_WITH_CUDA OFF)
set(WPNODE_CUDA_ARCHITECTURES "")

# The nvcc that `CUDACXX` names, else the one in `CUDA_HOME` or `CUDA_PATH`, else the one on
# PATH. Leaves `nvcc` empty and `nvcc_problem` filled when there is none that works.
function(wpnode_find_nvcc)
  set(home "$ENV{CUDA_HOME}")
  if(NOT home)
    set(home "$ENV{CUDA_PATH}")
  endif()
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    find_program(found "$ENV{CUDACXX}" NO_CACHE)
    set(where "CUDACXX=$ENV{CUDACXX}")
  elseif(home)
    find_program(found nvcc PATHS "${home}/bin" NO_DEFAULT_PATH NO_CACHE)
    set(where "CUDA_HOME=${home}")
  else()
    find_program(found nvcc PATHS ENV PATH NO_DEFAULT_PATH NO_CACHE)
    set(where "PATH")
  endif()
  set(nvcc "" PARENT_SCOPE)
  if(NOT found)
    set(nvcc_problem "no nvcc in ${where}" PARENT_SCOPE)
    return()
  endif()

  set(folder "${PROJECT_BINARY_DIR}/nvcc-check")
  file(WRITE "${folder}/kernel.cu" "__global__ void kernel(float* x) { *x = 1.0f; }\n")
  execute_process(
    COMMAND "${found}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 -c kernel.cu -o kernel.o
    WORKING_DIRECTORY "${folder}"
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    set(nvcc_problem "${found} cannot compile a kernel:\n${output}" PARENT_SCOPE)
    return()
  endif()
  set(nvcc "${found}" PARENT_SCOPE)
endfunction()

if(NOT choice STREQUAL "OFF")
  wpnode_find_nvcc()
  if(nvcc)
    set(WPNODE_WITH_CUDA ON)
  elseif(choice STREQUAL "ON")
    set(hint "")
    if(EXISTS /usr/local/cuda/bin/nvcc)
      set(hint " A toolkit seems to be in /usr/local/cuda: try CUDA_HOME=/usr/local/cuda.")
    endif()
    message(FATAL_ERROR
      "WPNODE_CUDA=ON needs a working nvcc, but there is none: ${nvcc_problem}.${hint} "
      "Install the CUDA toolkit and put nvcc on PATH (or set CUDA_HOME or CUDACXX), or build "
      "for the CPU with WPNODE_CUDA=OFF.")
  else()
    message(STATUS "wpnode_ext: CPU build, ${nvcc_problem} "
      "(WPNODE_CUDA=AUTO; set WPNODE_CUDA=ON to insist).")
  endif()
endif()

if(WPNODE_WITH_CUDA)
  if(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
    wpnode_parse_arch_list("$ENV{TORCH_CUDA_ARCH_LIST}" WPNODE_CUDA_ARCHITECTURES)
  else()
    wpnode_default_architectures("${nvcc}" WPNODE_CUDA_ARCHITECTURES)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${WPNODE_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_COMPILER "${nvcc}")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  enable_language(CUDA)
  message(STATUS "wpnode_ext: CUDA build with nvcc ${CMAKE_CUDA_COMPILER_VERSION} "
    "for ${WPNODE_CUDA_ARCHITECTURES}")
endif()
