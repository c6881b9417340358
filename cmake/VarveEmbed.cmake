# varve_embed(TARGET FUNCTION FILES...): adds to TARGET the C++ function FUNCTION (its whole name: varve::recorder::recorder_files), which returns the content of FILES in this
# order, as core/base/embedded.h says. Text or programs alike: the assembler includes each as it is. A file may be made by a rule of the same folder.
function(varve_embed target function)
  string(REGEX REPLACE "::[^:]*$" "" namespace ${function})
  string(REGEX REPLACE "^.*::" "" name ${function})
  string(REPLACE "::" "_" symbol ${function})
  set(assembly "")
  set(declarations "")
  set(entries "")
  set(number 0)
  foreach(file IN LISTS ARGN)
    get_filename_component(base ${file} NAME)
    set(one ${symbol}_${number})
    string(APPEND assembly "    \".balign 16\\n${one}: .incbin \\\"${file}\\\"\\n${one}_end: .byte 0\\n.balign 8\\n${one}_size: .quad ${one}_end - ${one}\\n\"\n")
    string(APPEND declarations "extern \"C\" __attribute__((visibility(\"hidden\"))) const char ${one}[];\nextern \"C\" __attribute__((visibility(\"hidden\"))) const std::uint64_t ${one}_size;\n")
    string(APPEND entries "      {\"${base}\", {${one}, ${one}_size}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(GENERATE OUTPUT ${source} CONTENT "// Made by varve_embed().
#include <cstdint>

#include \"core/base/embedded.h\"

asm(\".pushsection .rodata\\n\"
${assembly}    \".popsection\\n\");
${declarations}
namespace ${namespace} {

varve::EmbeddedFiles ${name}() {
  static const varve::EmbeddedFile files[] = {
${entries}  };
  return files;
}

}  // namespace ${namespace}
")
  # The assembler reads the files unseen by the compiler's list of what a source depends on; of a source among others in one
  # unit it would not be asked.
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${ARGN}" SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
