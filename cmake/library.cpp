// The shared library is made of archives; CMake wants a source of its own.
