#include <filesystem>
#include <ostream>

#include "cli/base/settings.h"
#include "cli/base/usage_errors.h"
#include "cli/command.h"
#include "cli/help_command.h"
#include "cli/manual.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

const CLI::App& command_or_usage_error(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> before;
  for (const auto& word : words) {
    auto path = before;
    path.push_back(word);
    if (find_command(app, path) == nullptr)
      fail<UsageError>("{} (`varve help` lists them)", no_such_command(app, before, word));
    before = std::move(path);
  }
  return *find_command(app, words);
}

// Everything that an installation puts beside the program: man1/*.1, a completion script per shell, an example of its
// settings.
void write_all(const CLI::App& app, const std::filesystem::path& folder) {
  const auto write = [&](const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, as_bytes(text));
  };
  write(folder / "man/man1/varve.1", manual_page(app, {}));
  for (const auto& words : command_names(app))
    write(folder / "man/man1" / (manual_page_name(words) + ".1"), manual_page(app, words));
  write(folder / "bash-completion/completions/varve", completion_script(app, "bash"));
  write(folder / "zsh/site-functions/_varve", completion_script(app, "zsh"));
  write(folder / "fish/vendor_completions.d/varve.fish", completion_script(app, "fish"));
  write(folder / "doc/varve/varve.toml.example", settings_example(app));
}

}  // namespace

void add_help_commands(CLI::App& app, Context& context) {
  struct Words {
    std::vector<std::string> words;
    std::filesystem::path folder;
    std::string shell;
  };
  const auto options = std::make_shared<Words>();

  auto* help = app.add_subcommand("help", "Shows the help of a command");
  help->add_option("COMMAND", options->words, "The command, e.g. `session ls`; none lists all");
  help->footer("Example:\n  varve help run");
  help->callback([&app, &context, options] {
    const auto& command = command_or_usage_error(app, options->words);
    const auto name = options->words.empty() ? std::string("varve") : "varve " + joined(options->words, " ");
    // Not App::help(), which would go on to the command that was named: `help` itself.
    context.out << app.get_formatter()->make_help(&command, name, CLI::AppFormatMode::Normal);
  });

  auto* man = app.add_subcommand("man", "Prints the manual page of a command");
  man->add_option("COMMAND", options->words, "The command; none means the program");
  man->add_option("--write-to", options->folder,
                  "Write all pages and completion scripts below this folder, as under /usr/share")
      ->type_name("DIR");
  man->footer("Example:\n  varve man run | man -l -");
  man->callback([&app, &context, options] {
    if (!options->folder.empty()) return write_all(app, options->folder);
    command_or_usage_error(app, options->words);
    context.out << manual_page(app, options->words);
  });

  auto* completion = app.add_subcommand("completion", "Prints a completion script for a shell");
  completion->add_option("SHELL", options->shell, "bash, zsh or fish")->required();
  completion->footer("Example:\n  varve completion bash > /etc/bash_completion.d/varve");
  completion->callback([&app, &context, options] { context.out << completion_script(app, options->shell); });
}

}  // namespace varve::cli
