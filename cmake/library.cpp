// The shared library consists of static libraries, but CMake requires a source file.
