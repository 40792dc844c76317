# LLVM/MLIR 22 as Debian packages it: found without a version, hinted by llvm-config.
# cleave_use_mlir(TARGET) gives a library MLIR's headers, its precompiled header and libraries.
find_program(LLVM_CONFIG NAMES llvm-config-22 llvm-config REQUIRED)
execute_process(COMMAND ${LLVM_CONFIG} --cmakedir OUTPUT_VARIABLE llvmCmake OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${LLVM_CONFIG} --libdir OUTPUT_VARIABLE llvmLib OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(llvmCmakeParent ${llvmCmake} DIRECTORY)
find_package(LLVM CONFIG REQUIRED HINTS ${llvmCmake})
find_package(MLIR CONFIG REQUIRED HINTS ${llvmCmakeParent}/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
find_package(fmt REQUIRED) # here, so that every folder sees the target
include(TableGen)
include(AddLLVM)
include(AddMLIR)

# LLVM's folder also holds an OpenMP runtime under GNU's name: the system's folder comes first, so that every program of ours
# runs the one that oneDNN was built with.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1 OUTPUT_VARIABLE gompFile OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(gompFile ${gompFile} REALPATH)
get_filename_component(gompFolder ${gompFile} DIRECTORY)
set(mlirRpath ${gompFolder} ${llvmLib})

# One precompiled header for every library that sees MLIR (a fifth of the compile time).
add_library(cleave_mlir_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
target_include_directories(cleave_mlir_pch SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
set(pchOptions "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
target_compile_options(cleave_mlir_pch PRIVATE ${pchOptions})
# It holds absolute paths, so a cached one of a clone elsewhere cannot be used; what is compiled with it can.
set_target_properties(cleave_mlir_pch PROPERTIES CXX_COMPILER_LAUNCHER "")
target_precompile_headers(cleave_mlir_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/MlirPch.h)
# What ccache takes for the precompiled header's contents, which name the folder of this clone: all that decides them.
file(SHA256 ${PROJECT_SOURCE_DIR}/cmake/MlirPch.h pchSum)
file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/cleave_mlir_pch.dir/cmake_pch.hxx.pch.sum
  "${pchSum} ${CMAKE_CXX_COMPILER_VERSION} ${LLVM_PACKAGE_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CLEAVE_SANITIZE}")

function(cleave_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_link_libraries(${target} PUBLIC MLIR LLVM)
  target_compile_options(${target} PRIVATE ${pchOptions})
  target_precompile_headers(${target} REUSE_FROM cleave_mlir_pch)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${mlirRpath})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${mlirRpath})
endfunction()

# Programs that link a library which uses MLIR find libMLIR through this.
function(cleave_mlir_program target)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${mlirRpath})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${mlirRpath})
endfunction()
