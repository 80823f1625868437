# Writes OUTPUT: the hash of the files named in LIST (one path a line) as moetune::kCpuRevision. Names do not count, so that
# a moved tree has the same revision.
file(STRINGS ${LIST} files)
set(all "")
foreach(file ${files})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 revision "${all}")
string(SUBSTRING ${revision} 0 16 revision)
file(WRITE ${OUTPUT} "// Generated. Do not edit.\n#include \"cpu/revision.h\"\nnamespace moetune {\nconst std::string_view kCpuRevision = \"${revision}\";\n}\n")
