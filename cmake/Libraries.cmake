# The libraries that the runtime links, as targets of this project, so that only this file decides which are used and which are
# static.
#
# cleave_onednn, cleave_mpi   the library, or nothing if the build excludes it (CLEAVE_ONEDNN, CLEAVE_MPI)
# cleave_fmt, cleave_zlib, cleave_crypto (OpenSSL's libcrypto), cleave_gomp
# With CLEAVE_STATIC these libraries and the C++ libraries are linked statically: fmt from its headers (Debian has no static
# library of it), zlib, libcrypto and libgomp from their static libraries.
if(CLEAVE_STATIC AND (CLEAVE_COMPILER OR CLEAVE_ONEDNN OR CLEAVE_MPI))
  message(FATAL_ERROR "CLEAVE_STATIC: LLVM, oneDNN and MPI are shared libraries: set CLEAVE_COMPILER, CLEAVE_ONEDNN and CLEAVE_MPI to OFF")
endif()

foreach(name onednn mpi fmt zlib crypto gomp)
  add_library(cleave_${name} INTERFACE)
endforeach()

if(CLEAVE_ONEDNN)
  find_package(dnnl CONFIG REQUIRED)
  target_link_libraries(cleave_onednn INTERFACE DNNL::dnnl)
endif()
if(CLEAVE_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  target_link_libraries(cleave_mpi INTERFACE MPI::MPI_C)
endif()

find_package(fmt REQUIRED)
if(CLEAVE_STATIC)
  set(ZLIB_USE_STATIC_LIBS ON)
  set(OPENSSL_USE_STATIC_LIBS ON)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a OUTPUT_VARIABLE gompArchive OUTPUT_STRIP_TRAILING_WHITESPACE)
  target_link_libraries(cleave_fmt INTERFACE fmt::fmt-header-only)
  target_link_libraries(cleave_gomp INTERFACE ${gompArchive})
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections)
  add_compile_options(-ffunction-sections -fdata-sections)
else()
  target_link_libraries(cleave_fmt INTERFACE fmt::fmt)
  target_link_libraries(cleave_gomp INTERFACE gomp)
endif()
find_package(ZLIB REQUIRED)
target_link_libraries(cleave_zlib INTERFACE ZLIB::ZLIB)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(cleave_crypto INTERFACE OpenSSL::Crypto)
