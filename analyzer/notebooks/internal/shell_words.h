#pragma once
// Commands of a shell, as sh would split them, with what IPython adds: {expression} and $name stay as they are written.
#include <string>
#include <vector>

#include "analyzer/notebooks/internal/collector.h"

namespace varve::notebooks {

struct ShellCommand {
  std::vector<std::string> words;  // without quotes, redirections, comments
  const char* place = nullptr;     // of the first word
};

class ShellSplitter {
 public:
  explicit ShellSplitter(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}
  // The next command between `;`, `&&`, `||`, `|`, `&`, brackets and newlines. False at the end.
  bool next(ShellCommand& command);

 private:
  bool read_word(ShellCommand& command);
  void read_quoted(std::string& word, char quote);
  void read_braced(std::string& word, char open, char close);
  void read_dollar(std::string& word);
  bool is_version_sign(const std::string& word) const;
  void skip_redirection(ShellCommand& command, std::string& word);
  void skip_here_documents();

  const char* at_;
  const char* end_;
  const char* unclosed_until_ = nullptr;     // brackets before it are known to have no end on their line
  bool in_target_ = false;                   // of a redirection
  std::vector<std::string> here_documents_;  // delimiters of those that begin behind this line
};

}  // namespace varve::notebooks
