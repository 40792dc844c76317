# Sets CLEAVE_CHECKED_ARITHMETIC: options with which code ends the program where its arithmetic is undefined or loses bits. The
# compiler's folders are compiled with them: sizes there are the user's, and a count that wraps around would be a wrong plan or an
# endless loop. The checks are clang's, as traps: they need no library, nor that LLVM is compiled with them, and cost nothing that
# can be measured. A build for sanitizers reports the same by name.
set(CLEAVE_CHECKED_ARITHMETIC "")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND NOT CLEAVE_SANITIZE)
  set(CLEAVE_CHECKED_ARITHMETIC
    -fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow,implicit-signed-integer-truncation
    -fsanitize-trap=all)
endif()
