#include "cli/base/usage_errors.h"

#include <algorithm>

#include <fmt/format.h>
#include <CLI/Option.hpp>

#include "cli/manual.h"
#include "core/base/text/nearest.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

// What docker, podman and skopeo call it. The first that this program has is named.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"ps", "session ls"},     {"containers", "session ls"},  {"sessions", "session ls"},
    {"rmi", "images rm"},     {"rm", "session rm"},          {"kill", "session stop"},
    {"umount", "unmount"},    {"history", "inspect"},        {"info", "status"},
    {"df", "images"},         {"push", "image export"},      {"copy", "image export"},
    {"save", "image export"}, {"convert", "image optimize"}, {"settings", "config"},
    {"install", "daemon"},
};
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"login", "log in with `skopeo login` or `podman login`: varve reads what they store"},
    {"logout", "log out with `skopeo logout` or `podman logout`: varve reads what they store"},
    {"build", "varve builds no images: take podman, buildah or docker, then `varve index`"},
    {"commit", "varve makes no image of a session: take podman or buildah"},
};

template <typename Table>
std::string_view found_in(const Table& table, std::string_view word) {
  for (const auto& [name, meaning] : table)
    if (name == word) return meaning;
  return {};
}

// Commands of two words whose second is this one.
std::vector<std::string> ends_of(const CLI::App& app, const std::string& word) {
  std::vector<std::string> found;
  for (const auto& words : command_names(app))
    if (words.size() > 1 && words.back() == word) found.push_back(joined(words, " "));
  return found;
}

std::vector<std::string> names_below(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); }))
    names.push_back(command->get_name());
  return names;
}

std::string meant(const CLI::App& app, const std::vector<std::string>& before, const std::string& word) {
  if (before.empty()) {
    if (const auto elsewhere = found_in(kElsewhere, word); !elsewhere.empty()) return fmt::format("; {}", elsewhere);
    const auto other = found_in(kOtherNames, word);
    std::vector<std::string> other_words;
    for (const auto part : split(other, " ")) other_words.emplace_back(part);
    if (!other.empty() && find_command(app, other_words) != nullptr) return fmt::format("; did you mean {}", other);
    if (const auto ends = ends_of(app, word); !ends.empty()) return "; did you mean " + joined(ends, " or ");
  }
  return did_you_mean(word, names_below(*find_command(app, before)), 1);
}

// How far the words lead.
struct Walk {
  std::vector<std::string> path;  // of commands
  std::string unknown_command;
  std::string unknown_option;
};

const CLI::Option* option_in(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent())
    if (const auto* option = command->get_option_no_throw(name)) return option;
  return nullptr;
}

Walk walk(const CLI::App& app, const std::vector<std::string>& words) {
  Walk result;
  const auto* command = &app;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const auto& word = words[i];
    if (word.size() > 1 && word.front() == '-') {
      const bool is_short = word[1] != '-';
      const auto name = is_short ? word.substr(0, 2) : word.substr(0, word.find('='));
      const auto* option = option_in(command, name);
      if (option == nullptr && result.unknown_option.empty()) result.unknown_option = name;
      if (option != nullptr && takes_value(*option) && (is_short ? word.size() == 2 : name == word)) ++i;
      continue;
    }
    if (names_below(*command).empty()) continue;
    auto path = result.path;
    path.push_back(word);
    const auto* inner = find_command(app, path);
    if (inner == nullptr) {
      // A command with commands below it that takes words as well.
      if (!command->get_options([](const CLI::Option* one) { return one->get_positional(); }).empty()) continue;
      if (result.unknown_option.empty()) result.unknown_command = word;  // else it may be the option's value
      break;
    }
    command = inner;
    result.path = std::move(path);
  }
  return result;
}

std::vector<std::string> options_of(const CLI::App* command) {
  std::vector<std::string> names;
  for (; command != nullptr; command = command->get_parent())
    for (const auto* option : command->get_options([](const CLI::Option* one) { return !one->get_group().empty(); }))
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// "IMAGE" of "IMAGE is required".
std::string what_is_missing(const std::string& message) {
  return message_text(message.substr(0, message.rfind(" is required")));
}

// "--mode: bogus not in {auto,kernel,fuse}".
std::string in_our_words(const std::string& message) {
  const auto name_end = message.find(": ");
  const auto list = message.rfind(" not in {");
  if (name_end == message.npos || list == message.npos || list < name_end || !message.ends_with('}'))
    return message_text(message);
  const auto values = split(std::string_view(message).substr(list + 9, message.size() - list - 10), ",");
  std::vector<std::string> names(values.begin(), values.end());
  const auto typed = message.substr(name_end + 2, list - name_end - 2);
  return fmt::format("{} '{}': it is one of {}", message.substr(0, name_end), visible(typed, 100), joined(names));
}

std::string reason(const CLI::App& app, const Walk& found, const CLI::ParseError& error) {
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool is_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const auto* command = find_command(app, found.path);
  const auto spoken = joined(
      [&] {
        auto words = found.path;
        words.insert(words.begin(), "varve");
        return words;
      }(),
      " ");
  if ((is_extra || is_missing) && !found.unknown_command.empty())
    return no_such_command(app, found.path, found.unknown_command);
  if ((is_extra || is_missing) && !found.unknown_option.empty())
    return fmt::format("`{}` has no option '{}'{}", spoken, visible(found.unknown_option, 100),
                       did_you_mean(found.unknown_option, options_of(command), 1));
  if (is_missing && command->get_require_subcommand_min() > 0)
    return found.path.empty() ? "a command is missing"
                              : fmt::format("`{}` needs one of: {}", spoken, joined(names_below(*command)));
  if (is_missing && message_text(error.what()).ends_with(" is required"))
    return fmt::format("`{}` needs {}", spoken, what_is_missing(error.what()));
  if (is_extra) return fmt::format("`{}` does not expect: {}", spoken, message_text(joined(app.remaining(true), " ")));
  return in_our_words(error.what());
}

}  // namespace

std::string no_such_command(const CLI::App& app, const std::vector<std::string>& before, const std::string& word) {
  auto words = before;
  words.push_back(visible(word, 100));
  return fmt::format("there is no command '{}'{}", joined(words, " "), meant(app, before, word));
}

std::string explain_usage(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  const auto found = walk(app, words);
  auto help = found.path;
  help.insert(help.begin(), "varve");
  help.emplace_back("--help");
  return fmt::format("{} (see `{}`)", reason(app, found, error), joined(help, " "));
}

}  // namespace varve::cli
