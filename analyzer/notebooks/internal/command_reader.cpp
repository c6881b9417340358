#include "analyzer/notebooks/internal/command_reader.h"

#include <algorithm>
#include <array>

#include "analyzer/notebooks/internal/common_commands.h"
#include "analyzer/notebooks/internal/shell_words.h"
#include "core/base/text/image_path.h"

namespace varve::notebooks {

namespace {

// A program that installs packages. Lists of words are separated by blanks.
struct PackageTool {
  std::string_view programs;
  std::string_view label;
  std::string_view install_verbs;  // empty: the program takes no verb
  std::string_view upgrade_verbs;
  std::string_view remove_verbs;
  std::string_view value_options;   // whose value is the next word
  std::string_view source_options;  // whose value says what to install: a file, a folder
  bool python_names = false;
};

constexpr std::array<PackageTool, 12> kPackageTools = {{
    {"pip", "pip", "install", "", "uninstall",
     "-c --constraint -i --index-url --pypi-url --extra-index-url -f --find-links -t --target -d -b --build --prefix "
     "--root --src "
     "--trusted-host --proxy --timeout --default-timeout --retries --cache-dir --log --python --platform --abi "
     "--implementation "
     "--python-version --progress-bar --upgrade-strategy --no-binary --only-binary --global-option --install-option "
     "--config-settings --config-setting -C --exists-action --cert --client-cert --report --root-user-action "
     "--use-feature "
     "--use-deprecated --keyring-provider --build-option --resume-retries --uploaded-prior-to",
     "-r --requirement -e --editable --group", true},
    {"uv", "uv", "install add", "", "uninstall remove",
     "-c --constraint --constraints -i --index --default-index --index-url --extra-index-url -f --find-links -t "
     "--target --prefix -p "
     "--python --override --overrides --resolution --prerelease --index-strategy --keyring-provider -P "
     "--upgrade-package "
     "--reinstall-package --link-mode --no-binary --only-binary --no-build-package --no-binary-package --cache-dir "
     "--config-file "
     "--directory --project --extra --optional --group --branch --tag --rev --package --script --python-version "
     "--python-platform "
     "--torch-backend --exclude-newer -C --config-setting --color --with",
     "-r --requirement --requirements -e --editable", true},
    {"conda mamba micromamba", "", "install create", "update upgrade", "remove uninstall",
     "-c --channel -n --name -p --prefix --solver --experimental-solver --repodata-fn --clone --revision --subdir "
     "--platform "
     "--channel-priority -r --root-prefix --rc-file --retry-clean-cache",
     "--file -f", false},
    {"apt apt-get aptitude", "apt", "install reinstall", "upgrade", "remove purge autoremove",
     "-t --target-release -o --option -c --config-file -a --host-architecture", "", false},
    {"pipx", "pipx", "install inject", "upgrade", "uninstall",
     "--python --suffix --index-url -i --pip-args --preinstall", "", true},
    {"poetry", "poetry", "add", "update", "remove",
     "-G --group -E --extras --python --platform --source -C --directory -P --project", "", true},
    {"pdm", "pdm", "add", "update", "remove", "-G --group -p --project -s --section", "-e --editable", true},
    {"pipenv", "pipenv", "install", "update upgrade", "uninstall",
     "-i --index --pypi-mirror --extra-pip-args --categories --python", "-r -e", true},
    {"easy_install", "easy_install", "", "", "",
     "-d --install-dir -i --index-url -f --find-links -s --script-dir -b --build-directory", "", true},
    {"npm yarn", "npm", "install i add", "upgrade", "uninstall remove", "--prefix --registry -C --cwd", "", false},
    {"brew", "brew", "install", "upgrade", "uninstall remove", "", "", false},
    {"yum dnf microdnf apk", "", "install add", "update upgrade", "remove erase del",
     "-c --enablerepo --disablerepo -X --repository --releasever", "", false},
}};

// Programs that run the command behind them; their options that take a value.
struct Wrapper {
  std::string_view name;
  std::string_view value_options;
  int operands = 0;  // words before the command
};

constexpr std::array<Wrapper, 26> kWrappers = {
    {{"sudo", "-u --user -g --group -h -p -C", 0},
     {"env", "-u --unset -C --chdir -S", 0},
     {"nohup", "", 0},
     {"time", "-f -o", 0},
     {"exec", "-a", 0},
     {"command", "", 0},
     {"builtin", "", 0},
     {"then", "", 0},
     {"do", "", 0},
     {"else", "", 0},
     {"if", "", 0},
     {"elif", "", 0},
     {"while", "", 0},
     {"until", "", 0},
     {"!", "", 0},
     {"{", "", 0},
     {"nice", "-n --adjustment", 0},
     {"ionice", "-c -n", 0},
     {"stdbuf", "-i -o -e", 0},
     {"timeout", "-s --signal -k --kill-after", 1},
     {"xargs", "-n -I -L -P -d -a -s -E --max-args --max-procs --delimiter --arg-file", 0},
     {"setsid", "", 0},
     {"unbuffer", "", 0},
     {"doas", "-u -C", 0},
     {"taskset", "", 1},
     {"numactl", "-C -m -N -i", 0}}};

bool has_word(std::string_view list, std::string_view word) {
  if (word.empty()) return false;
  for (std::size_t at = 0; at < list.size();) {
    const auto stop = std::min(list.find(' ', at), list.size());
    if (list.substr(at, stop - at) == word) return true;
    at = stop + 1;
  }
  return false;
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

bool is_assignment(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == 0 || equals == std::string_view::npos || is_digit(word.front())) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), is_word);
}

// "pip" of "/opt/conda/bin/pip3.10", "python" of "{sys.executable}" and "$PYTHON".
std::string program_name(std::string_view word) {
  if (word.find_first_of("{$") != std::string_view::npos) {
    const auto lower = to_lower(word);
    if (lower.find("executable") != std::string::npos || lower.find("python") != std::string::npos) return "python";
    if (lower.find("pip") != std::string::npos) return "pip";
    if (lower.find('/') == std::string::npos) return {};
  }
  word = name_of(word);
  if (word.ends_with(".exe")) word.remove_suffix(4);
  const auto numbered = [&](std::string_view name) {
    return word.starts_with(name) && std::all_of(word.begin() + static_cast<std::ptrdiff_t>(name.size()), word.end(),
                                                 [](char c) { return is_digit(c) || c == '.'; });
  };
  for (const std::string_view name : {"pip", "python", "pypy", "conda"}) {
    if (numbered(name)) return name == "pypy" ? "python" : std::string(name);
  }
  return std::string(word);
}

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto ending) { return text.ends_with(ending); });
}

// The name a package of another kind than Python's begins with: "htop=1.2", "conda-forge::numpy", "libx:amd64".
std::string plain_package_name(std::string_view word) {
  if (const auto channel = word.find("::"); channel != std::string_view::npos) word = word.substr(channel + 2);
  const auto allowed = [](char c) { return (is_word(c) && (c & 0x80) == 0) || c == '-' || c == '.' || c == '+'; };
  std::size_t size = 0;
  while (size < word.size() && allowed(word[size])) ++size;
  if (size == 0 || !is_word(word.front())) return {};
  if (size < word.size() && std::string_view("=<>!~:[ ").find(word[size]) == std::string_view::npos) return {};
  if (ends_with_any(word, {".deb", ".rpm", ".txt", ".yml", ".yaml", ".conda", ".bz2", ".gz", ".lock"})) return {};
  return to_lower(word.substr(0, size));
}

class CommandReader {
 public:
  CommandReader(const std::vector<std::string>& words, std::uint32_t line, Collector& out,
                const CommandOptions& options)
      : words_(words), line_(line), out_(out), options_(options) {}

  void read() {
    if (!skip_wrappers()) return;
    const auto program = program_name(words_[at_]);
    ++at_;
    if (program == "python") return read_interpreter();
    if (program == "bash" || program == "sh" || program == "zsh" || program == "dash") return read_shell();
    if (program == "eval") return read_text(rest());
    for (const auto& tool : kPackageTools) {
      if (!has_word(tool.programs, program)) continue;
      if (at_ < words_.size() && words_[at_] == "run" && !options_.installs_only) return read_run();
      return read_packages(tool, tool.label.empty() ? program : std::string(tool.label));
    }
    read_program(program);
  }

 private:
  bool skip_wrappers() {
    while (at_ < words_.size()) {
      if (is_assignment(words_[at_])) {
        ++at_;
        continue;
      }
      const auto wrapper =
          std::find_if(kWrappers.begin(), kWrappers.end(), [&](const Wrapper& w) { return w.name == words_[at_]; });
      if (wrapper == kWrappers.end()) return true;
      ++at_;
      skip_options(wrapper->value_options);
      at_ += static_cast<std::size_t>(wrapper->operands);
    }
    return false;
  }

  void skip_options(std::string_view value_options) {
    while (at_ < words_.size() && is_option(words_[at_])) {
      const bool takes_value = has_word(value_options, words_[at_]);
      at_ += takes_value ? 2 : 1;
    }
  }

  // `conda run -n env command`, `uv run --with x command`
  void read_run() {
    ++at_;
    skip_options(
        "-n --name -p --prefix --cwd --with --python --extra --group --env-file --project --directory "
        "--with-requirements");
    if (at_ >= words_.size()) return;
    const std::vector<std::string> inner(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
    read_nested(out_, std::nullopt, [&] { read_command_words(inner, line_, out_, options_); });
  }

  std::string rest() const {
    std::string text;
    for (std::size_t i = at_; i < words_.size(); ++i) text += words_[i] + " ";
    return text;
  }

  void read_text(const std::string& text) {
    read_nested(out_, std::nullopt, [&] { read_shell_commands({.text = text, .line = line_}, out_, options_); });
  }

  void read_shell() {
    for (; at_ + 1 < words_.size() && is_option(words_[at_]); ++at_) {
      if (words_[at_][1] != '-' && words_[at_].back() == 'c') return read_text(words_[at_ + 1]);
    }
  }

  void read_interpreter() {
    for (; at_ < words_.size() && is_option(words_[at_]); ++at_) {
      const auto& option = words_[at_];
      if (option.starts_with("-m")) {
        if (option.size() > 2) return read_module(option.substr(2));
        if (++at_ < words_.size()) return read_module(words_[at_]);
        return;
      }
      if (option == "-c" && at_ + 1 < words_.size()) {
        const Source code{.text = words_[at_ + 1], .line = line_};
        read_nested(out_, ImportKind::kShell, [&] { read_python_source(code, out_, {.magics = false}); });
        return;
      }
      if (option == "-W" || option == "-X") ++at_;
    }
  }

  void read_module(const std::string& module) {
    if (at_ < words_.size()) ++at_;
    for (const auto& tool : kPackageTools) {
      if (tool.python_names && has_word(tool.programs, module)) return read_packages(tool, std::string(tool.label));
    }
    if (options_.installs_only ||
        !std::all_of(module.begin(), module.end(), [](char c) { return is_word(c) || c == '.'; }))
      return;
    if (module.empty()) return;
    out_.add(Import{.name = module, .module = module, .kind = ImportKind::kShell, .line = line_});
  }

  void read_packages(const PackageTool& tool, const std::string& label) {
    bool remove = false, upgrade = false;
    if (!tool.install_verbs.empty() && !read_verb(tool, remove, upgrade)) return;
    for (std::size_t i = at_; i < words_.size(); ++i) upgrade |= is_upgrade(words_[i]);
    const auto add = [&](std::string package, std::string argument) {
      out_.add(Install{.tool = label,
                       .package = std::move(package),
                       .argument = std::move(argument),
                       .upgrade = upgrade,
                       .remove = remove,
                       .line = line_});
    };
    for (; at_ < words_.size(); ++at_) {
      const auto& word = words_[at_];
      if (word.empty() || word == "-" || word == "--") continue;
      if (!is_option(word)) {
        add(tool.python_names ? requirement_name(word) : plain_package_name(word), word);
        continue;
      }
      const auto equals = word.find('=');
      if (has_word(tool.source_options, word)) {
        if (at_ + 1 < words_.size()) add({}, word + " " + words_[at_ + 1]);
        ++at_;
      } else if (word.starts_with("--") && equals != std::string::npos &&
                 has_word(tool.source_options, word.substr(0, equals))) {
        add({}, word.substr(0, equals) + " " + word.substr(equals + 1));
      } else if (word.size() > 2 && word[1] != '-' && has_word(tool.source_options, word.substr(0, 2))) {
        add({}, word.substr(0, 2) + " " + word.substr(2));
      } else if (has_word(tool.value_options, word) || takes_value_at_end(tool, word)) {
        ++at_;
      }
    }
  }

  // False if the command installs nothing: `pip list`.
  bool read_verb(const PackageTool& tool, bool& remove, bool& upgrade) {
    for (; at_ < words_.size(); ++at_) {
      const auto& word = words_[at_];
      if (is_option(word)) {
        if (has_word(tool.value_options, word)) ++at_;
        continue;
      }
      if (word == "pip" || word == "env" || word == "global" || word == "tool")
        continue;  // `uv pip`, `conda env`, `yarn global`
      ++at_;
      upgrade = has_word(tool.upgrade_verbs, word);
      remove = has_word(tool.remove_verbs, word);
      return upgrade || remove || has_word(tool.install_verbs, word);
    }
    return false;
  }

  static bool is_upgrade(std::string_view word) {
    if (word == "--upgrade") return true;
    if (word.size() < 2 || word[0] != '-' || word[1] == '-') return false;
    const auto letters = word.substr(1);
    return letters.find('U') != std::string_view::npos && std::all_of(letters.begin(), letters.end(), [](char c) {
             return std::string_view("UqvyI").find(c) != std::string_view::npos;
           });
  }

  // "-qi": the last letter's value is the next word.
  static bool takes_value_at_end(const PackageTool& tool, std::string_view word) {
    if (word.size() < 3 || word[1] == '-') return false;
    const auto letters = word.substr(1, word.size() - 2);
    if (!std::all_of(letters.begin(), letters.end(),
                     [](char c) { return c == 'q' || c == 'v' || c == 'U' || c == 'y'; }))
      return false;
    return has_word(tool.value_options, std::string("-") + word.back());
  }

  void read_program(const std::string& program) {
    if (options_.installs_only || program.empty() || program.size() > kMaxNameBytes || is_common_command(program))
      return;
    const auto allowed = [](char c) { return (is_word(c) && (c & 0x80) == 0) || c == '-' || c == '.' || c == '+'; };
    if (!std::all_of(program.begin(), program.end(), allowed) ||
        !(is_word(program.front()) && !is_digit(program.front())))
      return;
    if (ends_with_any(program, {".sh", ".py", ".pl", ".exe", ".bin", ".run", ".AppImage"})) return;
    const auto add = [&](std::string name) {
      out_.add(Import{.name = std::move(name), .module = {}, .kind = ImportKind::kShell, .line = line_});
    };
    add(program);
    if (program == "jupyter") {  // which runs jupyter-nbconvert
      skip_options("--config");
      if (at_ < words_.size() && std::all_of(words_[at_].begin(), words_[at_].end(), allowed))
        add("jupyter-" + words_[at_]);
    }
  }

  const std::vector<std::string>& words_;
  std::uint32_t line_;
  Collector& out_;
  const CommandOptions& options_;
  std::size_t at_ = 0;
};

}  // namespace

std::string requirement_name(std::string_view requirement) {
  requirement = trimmed(requirement);
  const auto allowed = [](char c) { return (is_word(c) && (c & 0x80) == 0) || c == '-' || c == '.'; };
  std::size_t size = 0;
  while (size < requirement.size() && allowed(requirement[size])) ++size;
  const auto name = requirement.substr(0, size);
  if (name.empty() || name.size() > kMaxNameBytes) return {};
  if (!is_word(name.front()) || name.front() == '_' || !is_word(name.back()) || name.back() == '_') return {};
  if (std::none_of(name.begin(), name.end(), [](char c) { return !is_digit(c) && c != '.'; })) return {};
  const auto rest = trimmed(requirement.substr(size));
  if (!rest.empty() && std::string_view("[<>=!~;@,(^").find(rest.front()) == std::string_view::npos) return {};
  if (ends_with_any(requirement, {".whl", ".txt", ".zip", ".gz", ".bz2", ".tar", ".tgz", ".toml", ".yml", ".egg"}) &&
      (rest.empty() || rest.front() != '@')) {
    return {};
  }
  std::string normal;
  for (const char c : to_lower(name)) {
    const bool separator = c == '-' || c == '_' || c == '.';
    if (!separator)
      normal += c;
    else if (normal.back() != '-')
      normal += '-';
  }
  return normal;
}

void read_command_words(const std::vector<std::string>& words, std::uint32_t line, Collector& out,
                        const CommandOptions& options) {
  CommandReader(words, line, out, options).read();
}

void read_shell_commands(const Source& source, Collector& out, const CommandOptions& options) {
  ShellSplitter splitter(source.text);
  for (ShellCommand command; splitter.next(command);)
    read_command_words(command.words, source.line_of(command.place), out, options);
}

void read_shell_source(const Source& source, Collector& out) { read_shell_commands(source, out, {}); }

}  // namespace varve::notebooks
