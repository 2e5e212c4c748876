# The instruction-set files are the only ones compiled beyond the baseline; the rest of the
# module must run on any machine of the architecture. On other machines than x86-64 those
# files are left out.

macro(wpnode_select_microkernels list)
  if(WPNODE_HAVE_X86)
    set(flags_avx2 -mavx2 -mfma -mf16c)
    set(flags_avx512 -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma -mf16c)
    foreach(set avx2 avx512)
      foreach(file IN LISTS ${list})
        if(file MATCHES "/cpu/microkernels_${set}\\.cpp$")
          set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${flags_${set}}")
        endif()
      endforeach()
    endforeach()
  else()
    list(FILTER ${list} EXCLUDE REGEX "/cpu/microkernels_avx(2|512)\\.cpp$")
  endif()
endmacro()
