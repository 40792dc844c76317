# cuDNN through cudnn-frontend. Only headers are needed; the library is opened at run time. Included after Cuda.cmake.
#
# cleave_use_cudnn(TARGET) adds convolution and attention for GPUs to the runtime: Cudnn.cpp if there is a CUDA backend and the
# headers of cuDNN and cudnn-frontend are found, otherwise a stub that reports what is missing when it is called.
# CLEAVE_CUDNN tells which of the two is built. The rules for shapes (CudnnShapes.cpp) are always built.
# CUDNN_FRONTEND_PATH (variable or environment) selects another cudnn-frontend than the one that scripts/setup installs.
set(cudnnFolders ${CUDNN_FRONTEND_PATH} $ENV{CUDNN_FRONTEND_PATH} ${PROJECT_SOURCE_DIR}/.cuda $ENV{CUDA_HOME} /usr/local/cuda)
set(cudnnFound ON)
if(DEFINED CLEAVE_HAS_CUDA AND NOT CLEAVE_HAS_CUDA)
  set(cudnnFound OFF)
endif()
set(cudnnIncludes "")
foreach(header cudnn_frontend.h cudnn.h cuda.h cuda_runtime_api.h nvrtc.h)
  string(MAKE_C_IDENTIFIER "CLEAVE_${header}" variable)
  find_path(${variable} ${header} HINTS ${cudnnFolders} PATH_SUFFIXES include)
  if(${variable})
    list(APPEND cudnnIncludes ${${variable}})
  else()
    set(cudnnFound OFF)
  endif()
endforeach()
list(REMOVE_DUPLICATES cudnnIncludes)
set(CLEAVE_CUDNN ${cudnnFound} CACHE INTERNAL "cuDNN's and cudnn-frontend's headers have been found")
set(CLEAVE_CUDNN_INCLUDES ${cudnnIncludes} CACHE INTERNAL "their folders")

function(cleave_use_cudnn target)
  set(folder ${PROJECT_SOURCE_DIR}/runtime/cuda)
  target_sources(${target} PRIVATE ${folder}/library/CudnnShapes.cpp)
  if(NOT CLEAVE_CUDNN)
    message(STATUS "cleave: no cuDNN: convolution and attention on GPUs will be errors (scripts/setup --cuda brings headers)")
    target_sources(${target} PRIVATE ${folder}/missing/CudnnMissing.cpp)
    return()
  endif()
  target_sources(${target} PRIVATE ${folder}/library/Cudnn.cpp)
  list(TRANSFORM CLEAVE_CUDNN_INCLUDES PREPEND -isystem OUTPUT_VARIABLE options) # system headers: no warnings from them
  # Without its JSON, which stores graphs in files, cudnn-frontend compiles a third faster.
  set_source_files_properties(${folder}/library/Cudnn.cpp PROPERTIES
    COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB")
  if(CLEAVE_SANITIZE) # nearly all of the file is cudnn-frontend's templates, which take two minutes to optimise with sanitizers
    list(APPEND options -O0)
    set_source_files_properties(${folder}/library/Cudnn.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON) # compiled with -O1
  endif()
  set_source_files_properties(${folder}/library/Cudnn.cpp PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()
