# Architecture lists: what the user asked for in torch's spelling, and the default.

# "8.0;8.6 9.0+PTX" (torch's spelling) -> "80-real;86-real;90-real;90-virtual" (CMake's).
function(wpnode_parse_arch_list text result)
  string(REGEX REPLACE "[ ,;]+" ";" items "${text}")
  set(list "")
  foreach(item IN LISTS items)
    if(NOT item MATCHES "^([0-9]+)\\.([0-9])([af]?)(\\+PTX)?$")
      message(FATAL_ERROR
        "`TORCH_CUDA_ARCH_LIST` must hold entries such as 8.0 or 9.0+PTX; got \"${item}\".")
    endif()
    set(number "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}")
    list(APPEND list "${number}-real")
    if(CMAKE_MATCH_4)
      list(APPEND list "${number}-virtual")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES list)
  set(${result} "${list}" PARENT_SCOPE)
endfunction()

# Every architecture from 75 to 120 this nvcc knows, and PTX of the newest for later ones.
function(wpnode_default_architectures nvcc result)
  execute_process(COMMAND "${nvcc}" --list-gpu-code OUTPUT_VARIABLE known)
  set(list "")
  foreach(number 75 80 86 89 90 100 103 110 120)
    if(known MATCHES "sm_${number}[^0-9]")
      list(APPEND list "${number}-real")
      set(newest ${number})
    endif()
  endforeach()
  list(APPEND list "${newest}-virtual")
  set(${result} "${list}" PARENT_SCOPE)
endfunction()
