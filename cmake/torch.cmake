# Headers and libraries of torch by path. `find_package(Torch)` is avoided: with a CUDA
# torch it fails without a CUDA toolkit, and it overrides the architecture list.
#
# Sets WPNODE_TORCH_VERSION and the imported target wpnode_torch.

set(WPNODE_TORCH_DIR "" CACHE PATH "Folder of the torch package to build against")
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

if(NOT WPNODE_TORCH_DIR)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/_build/torch_on_disk.py"
    OUTPUT_VARIABLE WPNODE_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT EXISTS "${WPNODE_TORCH_DIR}/include/torch/csrc/stable/library.h")
  message(FATAL_ERROR
    "`WPNODE_TORCH_DIR` must be the folder of a torch >= 2.10; got \"${WPNODE_TORCH_DIR}\". "
    "Install torch for ${Python_EXECUTABLE}, or pass -DWPNODE_TORCH_DIR=<site-packages>/torch.")
endif()

file(STRINGS "${WPNODE_TORCH_DIR}/version.py" line REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = ['\"](.*)['\"]$" "\\1" WPNODE_TORCH_VERSION "${line}")

# The stable ABI lives in this one library; nothing of c10 or ATen is used.
find_library(torch_cpu torch_cpu PATHS "${WPNODE_TORCH_DIR}/lib"
  NO_DEFAULT_PATH NO_CACHE REQUIRED)

add_library(wpnode_torch INTERFACE)
target_include_directories(wpnode_torch SYSTEM INTERFACE "${WPNODE_TORCH_DIR}/include")
# Only what exists in torch 2.10 is visible, so that every later torch can load the module.
target_compile_definitions(wpnode_torch INTERFACE TORCH_TARGET_VERSION=0x020a000000000000)
target_link_libraries(wpnode_torch INTERFACE "${torch_cpu}")
message(STATUS "wpnode_ext: building against torch ${WPNODE_TORCH_VERSION} in ${WPNODE_TORCH_DIR}")
