#pragma once
// What commands install, and which programs of distributions they run.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/internal/collector.h"

namespace varve::notebooks {

struct CommandOptions {
  bool installs_only = false;  // that the words are a command is only likely: programs they run are not told
};

void read_shell_commands(const Source& source, Collector& out, const CommandOptions& options);
// One command, split already, as in subprocess.run([…]).
void read_command_words(const std::vector<std::string>& words, std::uint32_t line, Collector& out,
                        const CommandOptions& options);

// The name in a requirement ("Torch_Vision[all]>=1; marker", "x @ https://…"), as PEP 503 normalises it. Empty for
// anything else: files, URLs, variables.
std::string requirement_name(std::string_view requirement);

}  // namespace varve::notebooks
