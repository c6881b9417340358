#pragma once
// Manual pages and shell completion, made from the same tree of commands and the same text as --help.
#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace varve::cli {

// The commands of the program and their subcommands, as lists of words: {"run"}, {"session", "ls"}. Without the program
// itself.
std::vector<std::vector<std::string>> command_names(const CLI::App& app);

// The subcommand of these words; nullptr if there is none.
const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& words);

// False for flags.
bool takes_value(const CLI::Option& option);

// "varve-session-ls" for {"session", "ls"}; "varve" for none.
std::string manual_page_name(const std::vector<std::string>& words);
// The page in roff (man(7)), section 1. The words must name a command.
std::string manual_page(const CLI::App& app, const std::vector<std::string>& words);

// A completion script for "bash", "zsh" or "fish". Throws UsageError for another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace varve::cli
