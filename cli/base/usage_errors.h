#pragma once
// What is wrong with the words of a command line, and what was probably meant.
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Error.hpp>

namespace varve::cli {

// "there is no command 'indx'; did you mean index". `before`: the commands that stand in front of the word.
std::string no_such_command(const CLI::App& app, const std::vector<std::string>& before, const std::string& word);

// One line about why `words` could not be parsed, with the help to look at: that of the very command.
std::string explain_usage(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error);

}  // namespace varve::cli
