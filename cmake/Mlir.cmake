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

# LLVM's folder also has an OpenMP runtime under GNU's name. The system's folder comes first, so that every program of this
# project uses the OpenMP runtime that oneDNN was built with.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1 OUTPUT_VARIABLE gompFile OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(gompFile ${gompFile} REALPATH)
get_filename_component(gompFolder ${gompFile} DIRECTORY)
set(mlirRpath ${gompFolder} ${llvmLib})

# One precompiled header for every library that uses MLIR. (It saves a fifth of the compile time.)
cleave_precompiled(cleave_mlir_pch cmake/MlirPch.h LLVM_PACKAGE_VERSION)
target_include_directories(cleave_mlir_pch SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})

function(cleave_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_link_libraries(${target} PUBLIC MLIR LLVM)
  cleave_use_precompiled(${target} cleave_mlir_pch)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${mlirRpath})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${mlirRpath})
endfunction()

# cleave_mlir_program(TARGET) sets the run path by which a program that links MLIR finds libMLIR.
function(cleave_mlir_program target)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${mlirRpath})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${mlirRpath})
endfunction()
