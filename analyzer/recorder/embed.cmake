# Writes OUTPUT, a C++ file that holds the content of FILES: cmake -DOUTPUT=... -DFILES=a|b -P embed.cmake. The order is that of installation.
string(REPLACE "|" ";" files "${FILES}")
set(entries "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" content)
  string(APPEND entries "    {\"${name}\", R\"varve_file(${content})varve_file\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include \"analyzer/recorder/install.h\"

namespace varve::recorder {

const std::vector<RecorderFile>& recorder_files() {
  static const std::vector<RecorderFile> files{
${entries}  };
  return files;
}

}  // namespace varve::recorder
")
