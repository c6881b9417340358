#pragma once
// Reads Python line by line: imports at the beginnings of statements, calls by their parentheses, everything else is
// skipped. Knows brackets, strings, comments and continued lines, not the grammar: text that Python refuses is read as
// far as it makes sense.
#include <string_view>

#include "analyzer/notebooks/internal/call_reader.h"
#include "analyzer/notebooks/internal/code_blocks.h"
#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/import_parser.h"
#include "analyzer/notebooks/internal/string_literal.h"

namespace varve::notebooks {

class PythonReader {
 public:
  PythonReader(const Source& source, Collector& out, const PythonOptions& options)
      : source_(source),
        out_(out),
        options_(options),
        at_(source.begin()),
        end_(source.end()),
        strings_(source.text),
        calls_(source, out, strings_) {}

  void read();

 private:
  bool read_indent();
  void read_line();
  bool read_escape();
  bool skip_prompt();
  bool read_automagic(std::string_view word);
  void read_statement();
  std::string_view word_behind_async() const;
  bool read_import(bool in_brackets);
  void scan_line();
  bool scan_special();
  void scan_string();
  void begin_inline_statement();
  bool breaks_out(const char* line);
  void read_assigned_command();
  bool assigned_here() const;

  const Source& source_;
  Collector& out_;
  const PythonOptions& options_;
  const char* at_;
  const char* end_;
  StringReader strings_;
  CallReader calls_;
  CodeBlocks blocks_;
  ImportStatement statement_;
  int indent_ = 0;
  int brackets_ = 0;
  bool in_function_ = false;
  bool header_ = false;     // the line begins a block: a statement may stand behind its colon
  bool broke_out_ = false;  // the line stands inside brackets that were never closed
  bool prompts_ = false;    // lines begin with >>> and go on with ...
};

}  // namespace varve::notebooks
