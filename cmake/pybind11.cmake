# pybind11's headers, copied beside the objects. In an isolated build they lie in a folder
# with a random name; the copy gives every build the same include path, and thus the same
# compile commands. Files that did not change keep their time stamps.
#
# Sets WPNODE_PYBIND11_INCLUDE.

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import pybind11; print(pybind11.get_include())"
  OUTPUT_VARIABLE pybind11_include OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR
    "pybind11 was not found. Install it (pip install \"pybind11>=3.0\") or build with pip's "
    "default isolation, which fetches it.")
endif()

set(WPNODE_PYBIND11_INCLUDE "${PROJECT_BINARY_DIR}/pybind11-include")
file(GLOB_RECURSE headers RELATIVE "${pybind11_include}" "${pybind11_include}/pybind11/*.h")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  file(MAKE_DIRECTORY "${WPNODE_PYBIND11_INCLUDE}/${folder}")
  file(COPY_FILE "${pybind11_include}/${header}" "${WPNODE_PYBIND11_INCLUDE}/${header}"
    ONLY_IF_DIFFERENT)
endforeach()
