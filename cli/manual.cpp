#include "cli/manual.h"

#include <algorithm>
#include <sstream>

#include <CLI/Option.hpp>
#include "core/base/errors.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  auto commands = app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
  return commands;
}

void collect_names(const CLI::App& app, const std::vector<std::string>& prefix,
                   std::vector<std::vector<std::string>>& names) {
  for (const auto* command : subcommands_of(app)) {
    auto words = prefix;
    words.push_back(command->get_name());
    names.push_back(words);
    collect_names(*command, words, names);
  }
}

// Text as roff shows it unchanged: no control lines, no escapes, hyphens that can be copied.
std::string roff_text(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

std::string names_of(const CLI::Option& option) {
  std::string names;
  for (const auto& name : option.get_snames()) names += fmt::format("{}-{}", names.empty() ? "" : ", ", name);
  for (const auto& name : option.get_lnames()) names += fmt::format("{}--{}", names.empty() ? "" : ", ", name);
  return names;
}

std::string synopsis_of(const CLI::App& app) {
  std::string line = "[OPTIONS]";
  for (const auto* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    const auto name = option->get_name(true);
    const auto dots = option->get_items_expected_max() > 1 ? "..." : "";
    line += option->get_required() ? fmt::format(" {}{}", name, dots) : fmt::format(" [{}{}]", name, dots);
  }
  if (!subcommands_of(app).empty()) line += " COMMAND";
  return line;
}

void write_options(std::ostream& out, const CLI::App& app) {
  for (const auto* option :
       app.get_options([](const CLI::Option* o) { return !o->get_positional() && !o->get_group().empty(); })) {
    out << ".TP\n.B " << roff_text(names_of(*option));
    if (takes_value(*option)) out << " \\fI" << roff_text(option->get_type_name()) << "\\fR";
    out << '\n' << roff_text(option->get_description()) << '\n';
    if (!option->get_default_str().empty()) out << "Default: " << roff_text(option->get_default_str()) << ".\n";
  }
}

void write_arguments(std::ostream& out, const CLI::App& app) {
  for (const auto* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); }))
    out << ".TP\n.I " << roff_text(option->get_name(true)) << '\n' << roff_text(option->get_description()) << '\n';
}

void write_exit_status(std::ostream& out) {
  static constexpr std::pair<const char*, const char*> kStatuses[] = {
      {"0", "Done."},
      {"1", "Failed; the message names the object, what was wrong and what to do."},
      {"2", "Wrong usage."},
      {"3", "Done, with findings: a check or a plan reports problems."},
      {"75", "A temporary failure of registry or disk that may pass when tried again."},
      {"77", "Skipped: the machine lacks what is needed."},
      {"130", "Interrupted by Ctrl-C; 128 and the number of another signal that ended it."},
  };
  out << ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : kStatuses) out << ".TP\n.B " << status << '\n' << meaning << '\n';
}

// One line of help per option or command, without what a shell would read.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\'' || c == '"' || c == '`' || c == '$'; }, ' ');
  return text;
}

std::vector<std::string> words_after(const CLI::App& command) {
  std::vector<std::string> words;
  for (const auto* inner : subcommands_of(command)) words.push_back(inner->get_name());
  for (const auto* option : command.get_options([](const CLI::Option* o) { return !o->get_positional(); }))
    for (const auto& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

// What an option takes where that is one of a few words: "{auto,kernel,fuse}" in its type.
std::vector<std::string> values_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  const auto begin = type.rfind('{');
  const auto end = type.find('}', begin == type.npos ? 0 : begin);
  if (begin == type.npos || end == type.npos) return {};
  std::vector<std::string> values;
  for (const auto value : split_words(std::string_view(type).substr(begin + 1, end - begin - 1), ","))
    values.emplace_back(value);
  return values;
}

struct ValuedOption {
  std::string command;  // "prune plan"; "" for what all commands share
  std::string name;     // "--mode"
  std::vector<std::string> values;
};

std::vector<ValuedOption> valued_options(const CLI::App& app) {
  std::vector<ValuedOption> found;
  auto commands = command_names(app);
  commands.emplace_back();
  for (const auto& words : commands)
    for (const auto* option :
         find_command(app, words)->get_options([](const CLI::Option* o) { return !o->get_positional(); }))
      if (auto values = values_of(*option); !values.empty())
        for (const auto& name : option->get_lnames()) found.push_back({joined(words, " "), "--" + name, values});
  return found;
}

// Arms of a shell's `case "$command|$previous" in` that set a list of words.
template <typename Assign>
std::string value_arms(const CLI::App& app, const Assign& assign) {
  std::string arms;
  for (const auto& option : valued_options(app))
    arms += fmt::format("    {}\"{}|{}\") {} ;;\n", option.command.empty() ? "*" : "", option.command, option.name,
                        assign(option.values));
  return arms;
}

// A shell pattern that matches "COMMANDS-SO-FAR WORD" when WORD goes one command deeper.
std::string step_pattern(const std::vector<std::vector<std::string>>& names) {
  std::vector<std::string> patterns;
  for (const auto& words : names) {
    const std::vector<std::string> before(words.begin(), words.end() - 1);
    patterns.push_back(fmt::format("\"{} {}\"", joined(before, " "), words.back()));
  }
  return joined(patterns, "|");
}

std::string bash_completion(const CLI::App& app) {
  const auto names = command_names(app);
  std::ostringstream out;
  out << "# bash completion for varve\n_varve() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command= words= word i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    case \"$command $word\" in\n      "
      << step_pattern(names)
      << ") command=\"${command:+$command }$word\" ;;\n    esac\n  done\n  case \"$command\" in\n";
  out << "    \"\") words=\"" << joined(words_after(app), " ") << "\" ;;\n";
  const auto global = words_after(app);
  for (const auto& name : names) {
    auto words = words_after(*find_command(app, name));
    for (const auto& word : global)
      if (word.starts_with("--") && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    out << "    \"" << joined(name, " ") << "\") words=\"" << joined(words, " ") << "\" ;;\n";
  }
  // Bash breaks --mode=fuse into three words.
  out << "  esac\n  local previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  if [[ $current == \"=\" ]]; then current=\n"
         "  elif [[ $previous == \"=\" ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  case \"$command|$previous\" in\n"
      << value_arms(app, [](const auto& values) { return fmt::format("words=\"{}\"", joined(values, " ")); });
  out << "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -o default -F _varve varve\n";
  return out.str();
}

std::string zsh_candidates(const CLI::App& command) {
  std::string list;
  for (const auto* inner : subcommands_of(command))
    list += fmt::format(" '{}:{}'", inner->get_name(), one_line(inner->get_description()));
  for (const auto* option : command.get_options([](const CLI::Option* o) { return !o->get_positional(); }))
    for (const auto& name : option->get_lnames())
      list += fmt::format(" '--{}:{}'", name, one_line(option->get_description()));
  return list;
}

std::string zsh_completion(const CLI::App& app) {
  const auto names = command_names(app);
  std::ostringstream out;
  out << "#compdef varve\n_varve() {\n  local command= word\n  local -a candidates\n"
         "  for word in ${words[2,CURRENT-1]}; do\n    case \"$command $word\" in\n      "
      << step_pattern(names)
      << ") command=\"${command:+$command }$word\" ;;\n    esac\n  done\n  case \"$command\" in\n";
  out << "    \"\") candidates=(" << zsh_candidates(app) << ") ;;\n";
  for (const auto& name : names)
    out << "    \"" << joined(name, " ") << "\") candidates=(" << zsh_candidates(*find_command(app, name)) << ") ;;\n";
  out << "  esac\n  case \"$command|${words[CURRENT-1]}\" in\n"
      << value_arms(app, [](const auto& values) { return fmt::format("candidates=({})", joined(values, " ")); });
  out << "  esac\n  _describe 'varve' candidates\n  _files\n}\n_varve \"$@\"\n";
  return out.str();
}

void write_fish_options(std::ostream& out, const CLI::App& command, const std::string& condition) {
  for (const auto* option : command.get_options([](const CLI::Option* o) { return !o->get_positional(); }))
    for (const auto& name : option->get_lnames())
      out << fmt::format("complete -c varve{} -l {}{}{} -d '{}'\n", condition, name, takes_value(*option) ? " -r" : "",
                         values_of(*option).empty() ? "" : fmt::format(" -f -a '{}'", joined(values_of(*option), " ")),
                         one_line(option->get_description()));
}

std::string fish_completion(const CLI::App& app) {
  std::ostringstream out;
  out << "# fish completion for varve\n";
  write_fish_options(out, app, "");
  for (const auto* command : subcommands_of(app)) {
    out << fmt::format("complete -c varve -n __fish_use_subcommand -a {} -d '{}'\n", command->get_name(),
                       one_line(command->get_description()));
    const auto seen = fmt::format(" -n '__fish_seen_subcommand_from {}'", command->get_name());
    write_fish_options(out, *command, seen);
    for (const auto* inner : subcommands_of(*command))
      out << fmt::format("complete -c varve{} -a {} -d '{}'\n", seen, inner->get_name(),
                         one_line(inner->get_description()));
  }
  return out.str();
}

}  // namespace

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::vector<std::string>> command_names(const CLI::App& app) {
  std::vector<std::vector<std::string>> names;
  collect_names(app, {}, names);
  return names;
}

const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const auto& word : words) {
    const auto inner = subcommands_of(*command);
    const auto found =
        std::find_if(inner.begin(), inner.end(), [&](const CLI::App* one) { return one->get_name() == word; });
    if (found == inner.end()) return nullptr;
    command = *found;
  }
  return command;
}

std::string manual_page_name(const std::vector<std::string>& words) {
  return words.empty() ? "varve" : "varve-" + joined(words, "-");
}

std::string manual_page(const CLI::App& app, const std::vector<std::string>& words) {
  const auto& command = *find_command(app, words);
  const auto name = manual_page_name(words);
  const auto spoken = words.empty() ? "varve" : "varve " + joined(words, " ");
  std::ostringstream out;
  out << ".TH " << roff_text(name) << " 1\n.SH NAME\n"
      << roff_text(name) << " \\- " << roff_text(command.get_description()) << '\n';
  out << ".SH SYNOPSIS\n.B " << roff_text(spoken) << "\n" << roff_text(synopsis_of(command)) << '\n';
  out << ".SH OPTIONS\n";
  write_arguments(out, command);
  write_options(out, command);
  if (!words.empty()) out << ".PP\nThe options that all commands share are in\n.BR varve (1).\n";
  if (const auto inner = subcommands_of(command); !inner.empty()) {
    out << ".SH COMMANDS\n";
    for (const auto* one : inner)
      out << ".TP\n.B " << one->get_name() << '\n' << roff_text(one->get_description()) << '\n';
  }
  if (!command.get_footer().empty()) out << ".SH EXAMPLES\n.nf\n" << roff_text(command.get_footer()) << "\n.fi\n";
  write_exit_status(out);
  out << ".SH FILES\n.TP\n.I /etc/varve/varve.toml, ~/.config/varve/varve.toml\n"
         "Defaults of all options, by name; a table per command. What holds: `varve config`.\n";
  if (!words.empty()) out << ".SH SEE ALSO\n.BR varve (1)\n";
  return out.str();
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "zsh") return zsh_completion(app);
  if (shell == "fish") return fish_completion(app);
  fail<UsageError>("no completion for the shell '{}': bash, zsh and fish are known", shell);
}

}  // namespace varve::cli
