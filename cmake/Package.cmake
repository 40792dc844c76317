# What a user's project gets: the target cleave::cleave, the same from an installed package, add_subdirectory and FetchContent.
#
# The target is one shared library that holds ours and finds MLIR and LLVM by its own run path. So a user's program needs no
# library but this one, a compiler that knows C++20, and the public headers, which include the standard library alone. Our
# archives stay inside the build: tools and tests link them.
if(CLEAVE_COMPILER)
  add_library(cleave_library SHARED cmake/library.cpp)
  add_library(cleave::cleave ALIAS cleave_library)
  set_target_properties(cleave_library PROPERTIES OUTPUT_NAME cleave EXPORT_NAME cleave
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_link_libraries(cleave_library PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,cleave_frontend>)
  target_link_options(cleave_library PRIVATE -Wl,--exclude-libs,liblldELF.a:liblldCommon.a)
  target_compile_features(cleave_library INTERFACE cxx_std_20)
  target_include_directories(cleave_library INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/frontend>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  cleave_mlir_program(cleave_library)
endif()

if(NOT CLEAVE_INSTALL)
  return()
endif()

# What is installed is linked as it will lie there: no run path is written anew, which fails beside one that MPI's wrapper asks for.
foreach(target cleave cleave-run cleave-opt cleave_library)
  if(TARGET ${target})
    set_property(TARGET ${target} PROPERTY BUILD_WITH_INSTALL_RPATH ON)
  endif()
endforeach()

install(TARGETS cleave cleave-run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(NOT CLEAVE_COMPILER)
  return() # a machine that runs plans needs the tools alone
endif()
install(TARGETS cleave-opt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS cleave_library EXPORT cleaveTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
file(GLOB publicHeaders CONFIGURE_DEPENDS frontend/cleave/*.h runtime/include/cleave/*.h)
install(FILES ${publicHeaders} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cleave)

include(CMakePackageConfigHelpers)
set(packageFolder ${CMAKE_INSTALL_LIBDIR}/cmake/cleave)
configure_package_config_file(cmake/cleaveConfig.cmake.in ${PROJECT_BINARY_DIR}/cleaveConfig.cmake INSTALL_DESTINATION ${packageFolder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cleaveConfig.cmake ${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake DESTINATION ${packageFolder})
install(EXPORT cleaveTargets NAMESPACE cleave:: DESTINATION ${packageFolder})
