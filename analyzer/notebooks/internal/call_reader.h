#pragma once
// Calls that name a module or run a command: import_module("x"), exec("import x"), subprocess.run(["pip", …]).
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/string_literal.h"

namespace varve::notebooks {

class CallReader {
 public:
  CallReader(const Source& source, Collector& out, StringReader& strings)
      : source_(source), out_(out), strings_(strings), budget_(8 * source.text.size() + 4096) {}

  // `parenthesis` is an opening one; what is called is looked for before it.
  void on_call(const char* parenthesis);
  // Python 2: `exec "import x"`. `code` is what follows the word.
  void on_exec_statement(const char* code);
  // Any literal, for `_target_: "a.b.C"` of Hydra's configurations.
  void on_string(const char* quote, const StringLiteral& literal);

 private:
  struct Argument;  // the beginning of an argument, read as a constant
  struct Call;

  void read_call(const Call& call);
  void read_backend_call(const Call& call);
  void read_import_call(const Call& call, bool probe);
  void read_command_call(const Call& call);
  void read_exec(const Argument& code, const char* place);
  void read_magic_call(const Call& call);
  void read_requirement(const Call& call);
  void add_dynamic(const char* place, std::string_view name, bool local);
  void add_unknown(const char* place);

  Argument read_argument(const char* at);
  std::vector<std::string> read_list(const char* at);
  std::string read_words_item(const char*& at);
  const char* skip_space(const char* at) const;
  const char* skip_expression(const char* at);
  std::string_view keyword_string(const char* at, std::string_view name, std::string& value);

  const Source& source_;
  Collector& out_;
  StringReader& strings_;
  std::size_t budget_;  // bytes of arguments we may still look at: calls in calls in calls are read only so often
};

// `_target_: a.b.C` of configurations, line by line.
void read_targets(const Source& source, Collector& out);

}  // namespace varve::notebooks
