# Precompiled headers, because files spend most of their compile time on the same headers of libraries.
#
# A definition with a path of this clone belongs to the one file that uses it: ccache compares all options of a file.
#
# cleave_precompiled(NAME HEADER [VARIABLE...]) compiles HEADER, a path from the root, once. The variables hold versions of the
# included libraries, except those of the compiler, for the compiler cache. NAME needs the include folders and options of the
# targets that use it.
# cleave_use_precompiled(TARGET NAME) compiles TARGET with the precompiled header. TARGET and NAME need equal definitions, as
# far as the header's contents depend on them.
set(pchOptions "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

function(cleave_precompiled name header)
  add_library(${name} STATIC ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_compile_options(${name} PRIVATE ${pchOptions})
  # A precompiled header contains absolute paths, so a cached one of another clone cannot be used. Objects compiled with it can.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  # In this form CMake's own header does not contain the path of this clone, which ccache would compare.
  target_precompile_headers(${name} PRIVATE <${header}>)
  # ccache reads this file instead of the precompiled header, whose bytes depend on this clone's folder. It lists everything
  # that determines the header's contents.
  file(GLOB headers ${PROJECT_SOURCE_DIR}/cmake/*Pch.h) # they include each other
  set(texts "")
  foreach(file ${headers})
    file(SHA256 ${file} sum)
    list(APPEND texts ${sum})
  endforeach()
  foreach(variable ${ARGN})
    if("${${variable}}" STREQUAL "") # objects compiled with another version would be found
      message(FATAL_ERROR "cleave_precompiled(${name}): the variable ${variable} is empty")
    endif()
    list(APPEND texts ${variable}=${${variable}})
  endforeach()
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch.sum
    "${texts} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CLEAVE_SANITIZE}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
endfunction()

function(cleave_use_precompiled target name)
  target_compile_options(${target} PRIVATE ${pchOptions})
  target_precompile_headers(${target} REUSE_FROM ${name})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE) # must have the options of the precompiled header, which libraries share
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()
