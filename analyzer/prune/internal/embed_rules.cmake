# Writes OUTPUT, a C++ file that holds the text of RULES: cmake -DOUTPUT=... -DRULES=... -P embed_rules.cmake
file(READ "${RULES}" rules)
file(WRITE "${OUTPUT}" "#include \"analyzer/prune/internal/built_in_rules.h\"

namespace varve::prune::internal {

const std::string_view kNotebookRules = R\"varve_rules(${rules})varve_rules\";

}  // namespace varve::prune::internal
")
