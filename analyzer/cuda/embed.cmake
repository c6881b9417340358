# Writes OUT, a C++ file that holds the rule file FILE: cmake -DOUT=... -DFILE=... -P embed.cmake
file(READ "${FILE}" content)
# A raw string may hold 64 KiB with every compiler; pieces join.
string(LENGTH "${content}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${content}" ${at} 8000 piece)
  string(APPEND pieces "  R\"varve_rules(${piece})varve_rules\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE "${OUT}" "#include \"analyzer/cuda/rules.h\"

namespace varve::cuda {

std::string_view built_in_rules_text() {
  return
${pieces}  ;
}

}  // namespace varve::cuda
")
