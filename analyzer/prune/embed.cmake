# Writes OUTPUT, a C++ file that holds the content of FILES: cmake -DOUTPUT=... -DFILES=a|b -P embed.cmake.
string(REPLACE "|" ";" files "${FILES}")
set(entries "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" content)
  string(APPEND entries "    {\"${name}\", R\"varve_file(${content})varve_file\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include \"analyzer/prune/internal/python_files.h\"

namespace varve::prune::internal {

const std::map<std::string_view, std::string_view>& python_files() {
  static const std::map<std::string_view, std::string_view> files{
${entries}  };
  return files;
}

}  // namespace varve::prune::internal
")
