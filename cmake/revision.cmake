# Writes OUTPUT: the hash of the files named in LIST (one path a line) as moetune::SYMBOL. Names do not count, so that a moved tree has the same
# revision. See moetune_revision.
file(STRINGS ${LIST} files)
set(all "")
foreach(file ${files})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 revision "${all}")
string(SUBSTRING ${revision} 0 16 revision)
file(WRITE ${OUTPUT} "// Generated. Do not edit.\n#include <string_view>\nnamespace moetune {\nextern const std::string_view ${SYMBOL};\nconst std::string_view ${SYMBOL} = \"${revision}\";\n}\n")
