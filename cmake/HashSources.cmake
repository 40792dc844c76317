# Writes a header OUT that defines NAME as a hash of the contents of FILES. A header that does not change keeps its modification
# time.
set(sums "")
foreach(file ${FILES})
  file(SHA256 ${file} sum)
  string(APPEND sums ${sum})
endforeach()
string(SHA256 hash "${sums}")
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ${NAME} \"${hash}\"\n" @ONLY)
