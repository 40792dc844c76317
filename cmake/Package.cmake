# The target cleave::cleave for users' projects, the same from an installed package, add_subdirectory and FetchContent.
#
# The target is one shared library that contains all libraries of this project and finds MLIR and LLVM by its own run path. A
# user's program needs only this library, a C++20 compiler, and the public headers, which include only the standard library. The
# static libraries of this project are not installed; tools and tests link them.
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

# Link installed targets with their final run path: CMake's change of the run path during installation fails if MPI's wrapper
# adds a run path, too.
foreach(target cleave cleave-run cleave-opt cleave_library)
  if(TARGET ${target})
    set_property(TARGET ${target} PROPERTY BUILD_WITH_INSTALL_RPATH ON)
  endif()
endforeach()

install(TARGETS cleave cleave-run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(NOT CLEAVE_COMPILER)
  return() # a machine that only runs plans needs only the tools
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
# find_package also finds a build that is not installed, by its folder or by its bin/ in PATH.
export(EXPORT cleaveTargets NAMESPACE cleave:: FILE ${PROJECT_BINARY_DIR}/cleaveTargets.cmake)
