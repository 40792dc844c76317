# Precompiled headers: parsing the same libraries' headers is most of the time that our files take.
#
# cleave_precompiled(NAME HEADER [TEXT...]) compiles HEADER once. TEXT: versions of what the header includes beside what the
# compiler brings, for the compiler cache. Give NAME the include folders and options of those who use it.
# cleave_use_precompiled(TARGET NAME) compiles TARGET with it. Both need the same definitions that the header's contents see.
set(pchOptions "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

function(cleave_precompiled name header)
  add_library(${name} STATIC ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_compile_options(${name} PRIVATE ${pchOptions})
  # It holds absolute paths, so a cached one of a clone elsewhere cannot be used; what is compiled with it can.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  target_precompile_headers(${name} PRIVATE ${header})
  # What ccache takes for the precompiled header's contents, which name the folder of this clone: all that decides them.
  file(SHA256 ${header} sum)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch.sum
    "${sum} ${CMAKE_CXX_COMPILER_VERSION} ${ARGN} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CLEAVE_SANITIZE}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endfunction()

function(cleave_use_precompiled target name)
  target_compile_options(${target} PRIVATE ${pchOptions})
  target_precompile_headers(${target} REUSE_FROM ${name})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE) # compiled as the precompiled header is, which libraries share
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()
