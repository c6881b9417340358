#pragma once
// What is found in one cell of source text. Made by the readers, placed into cells by the notebook reader.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace varve::notebooks {

enum class ImportKind : std::uint8_t { kImport, kOptional, kDynamic, kMagic, kShell };
std::string_view import_kind_name(ImportKind kind);  // "import" "optional" "dynamic" "magic" "shell"

// Of Python: what cells of other languages load says nothing of Python's modules, though many names are the same.
struct Import {
  std::string name;  // dotted, as written: "a.b.c"; for `from a import b` "a.b", as b may be a module; ".b" if relative
  std::string module;  // the part that is certainly a module: "a" of `from a import b`; else equal to `name`;
                       // "" if the name is no module: a command (`!kaggle`), a distribution (pkg_resources.require)
  ImportKind kind = ImportKind::kImport;
  bool local = false;         // relative, or a module that lies beside the notebook
  bool rescued = false;       // from a line that does not parse
  bool written_file = false;  // inside a %%writefile body: another program's import
  bool unknown_name = false;  // dynamic, and the name is not a constant: `name` is ""
  bool in_function = false;   // runs when something is called, not when the file is read
  bool tried = false;         // optional because the `try` that it stands in catches its failure
  std::uint32_t cell = 0;     // 1-based, counting code cells as the notebook shows them; 0 for scripts without cells
  std::uint32_t line = 0;     // 1-based in the cell
};

struct Install {
  std::string tool;      // "pip" "conda" "mamba" "uv" "apt" …
  std::string package;   // normalised where it is a Python name; "" for a file or URL
  std::string argument;  // as written, with version and extras: "torch[cuda]==2.1", "git+https://…", "-r some.txt";
                         // words that a program puts together stay in braces: "{name}"
  bool upgrade = false;
  bool remove = false;  // uninstall
  std::uint32_t cell = 0, line = 0;
};

// Something that may waste or run out of GPU memory. A hint, never a verdict.
struct Hint {
  std::string kind;  // "loss-kept-with-graph" "evaluation-without-no-grad" "model-not-moved" "one-gpu-of-several" …
  std::string text;
  std::uint32_t cell = 0, line = 0;
};

// A library that another one loads for a call (`read_excel`): the code does not name it, and an image may have others
// that do the same.
struct Backend {
  std::string module;  // "openpyxl"
  std::string call;    // "read_excel", or the module whose import is enough
  std::uint32_t cell = 0, line = 0;
};

// One code cell, ready to be read.
struct Cell {
  std::string_view text;     // UTF-8; may hold anything
  std::uint32_t number = 0;  // goes into `cell` of what is found
};

// What hostile text can make us keep is bounded: beyond it, what is found in a notebook is dropped. All names and
// arguments are UTF-8 on one line.
inline constexpr std::size_t kMaxFindings = 100'000;

struct Findings {
  std::vector<Import> imports;  // in order of place; one per name, kind and place; at most kMaxFindings
  std::vector<Install> installs;
  std::vector<Hint> hints;
  std::vector<Backend> backends;       // in order of place
  std::vector<std::string> libraries;  // shared libraries that ctypes loads by a name or path, as written
};

// Python with IPython's magics: all cells of one notebook in order (hints look across cells). Scripts are one cell.
// Never throws on bad text. Cells of another language (%%R, %%julia) are passed over. Safe from any thread; time and
// memory are linear in the text.
Findings read_python(const std::vector<Cell>& cells);

// A file of plain Python: a module of a library, a program. Without IPython's lines and hints; else as read_python().
Findings read_module(std::string_view text);
// A file of shell commands: the modules and programs that it runs.
Findings read_shell(std::string_view text);
// One command, its words as a program is given them.
Findings read_command(const std::vector<std::string>& words);

}  // namespace varve::notebooks
