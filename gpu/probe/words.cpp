#include "gpu/probe/words.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

struct Option {
  std::string_view name;
  std::string_view value;         // what it takes, as --help names it
  long long least = 0, most = 0;  // of a number
  std::vector<std::string> given = {};
};

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& arguments) : arguments_(arguments) {
    while (next_ < arguments_.size()) read_one(arguments_[next_++]);
  }

  // In this order, as only the first thing that is wrong is told: values, what is missing, what is too much.
  Words words() {
    Words words;
    if (step_) check_step();
    if (const auto device = number(device_)) words.device = int(*device);
    words.size = std::size_t(number(size_).value_or(0));
    words.repetitions = int(number(repetitions_).value_or(words.repetitions));
    words.folders = folders_.given;
    words.help = help_;
    if (help_) return words;
    if (!step_) throw WrongUsage("STEP is required");
    words.step = *step_;
    refuse_unexpected();
    return words;
  }

 private:
  void read_one(const std::string& word) {
    if (only_positional_ || word == "-" || !word.starts_with('-')) return positional(word);
    if (word == "--") {
      only_positional_ = true;
      unexpected_.push_back(word);
    } else if (word.starts_with("-h") || word == "--help" || word.starts_with("--help=")) {
      help_ = true;
    } else if (auto* option = option_of(word.substr(0, word.find('=')))) {
      option->given.push_back(value_of(word, *option));
    } else {
      unexpected_.push_back(word);
    }
  }

  void positional(const std::string& word) {
    if (step_) return unexpected_.push_back(word);
    step_ = word;
  }

  Option* option_of(std::string_view name) {
    for (auto* option : {&device_, &size_, &repetitions_, &folders_}) {
      if (option->name == name) return option;
    }
    return nullptr;
  }

  // What stands behind "=", else the next word whatever it looks like.
  std::string value_of(const std::string& word, const Option& option) {
    const auto equals = word.find('=');
    if (equals != std::string::npos && equals + 1 < word.size()) return word.substr(equals + 1);
    if (next_ == arguments_.size())
      throw WrongUsage(fmt::format("{}: 1 required {} missing", option.name, option.value));
    return arguments_[next_++];
  }

  void check_step() const {
    const auto& entries = step_entries();
    if (std::ranges::find(entries, *step_, &StepEntry::name) == entries.end())
      throw WrongUsage("STEP: there is no step " + *step_);
  }

  static std::optional<long long> number(const Option& option) {
    std::optional<long long> value;
    for (const auto& text : option.given) {
      char* end = nullptr;
      errno = 0;
      value = std::strtoll(text.c_str(), &end, 0);
      if (errno != 0 || end == text.c_str() || *end != '\0' || *value < option.least || *value > option.most)
        throw WrongUsage(
            fmt::format("{}: Value {} not in range {} to {}", option.name, text, option.least, option.most));
    }
    if (option.given.size() > 1)
      throw WrongUsage(fmt::format("{}: At Most 1 required but received {}", option.name, option.given.size()));
    return value;
  }

  // The last one first.
  void refuse_unexpected() const {
    if (unexpected_.empty() || unexpected_ == std::vector<std::string>{"--"}) return;
    auto text = unexpected_.size() == 1 ? std::string("The following argument was not expected:")
                                        : std::string("The following arguments were not expected:");
    for (auto word = unexpected_.rbegin(); word != unexpected_.rend(); ++word) text += " " + *word;
    throw WrongUsage(text);
  }

  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  bool only_positional_ = false;
  bool help_ = false;
  std::optional<std::string> step_;
  Option device_{"--device", "INT:INT in [0 - 1048576]", 0, 1 << 20};
  Option size_{"--size", "UINT:UINT in [1 - 1073741824]", 1, 1 << 30};
  Option repetitions_{"--repetitions", "INT:INT in [1 - 1000]", 1, 1000};
  Option folders_{"--library-dir", "DIR"};
  std::vector<std::string> unexpected_;
};

}  // namespace

Words parse_words(const std::vector<std::string>& arguments) { return Reader(arguments).words(); }

std::string help_text(std::string_view program) {
  auto text = fmt::format(
      "Checks the GPU and its libraries from inside an image: one step in one process\n"
      "Usage: {} [OPTIONS] STEP\n\n"
      "Positionals:\n"
      "  STEP TEXT REQUIRED          One of the steps below\n\n"
      "Options:\n"
      "  -h,--help                   Print this help message and exit\n"
      "  --device INT:INT in [0 - 1048576]\n"
      "                              Number of the device, as the driver counts. Without it: device looks at all, "
      "the others use the first; nccl uses all in any case\n"
      "  --size UINT:UINT in [1 - 1073741824]\n"
      "                              How large the problem is, see below\n"
      "  --repetitions INT:INT in [1 - 1000]\n"
      "                              How often steady calls are timed; the median counts (9)\n"
      "  --library-dir DIR ...       Looks for libraries here, and in nvidia/*/lib below, after the loader's own "
      "search; may be given again. Without it: the usual site-packages\n\n"
      "Steps, and what --size counts (default):\n",
      program);
  for (const auto& entry : step_entries()) {
    text += fmt::format("  {:<12} {}\n", entry.name, entry.what);
    if (!entry.measure.empty()) text += fmt::format("  {:<12} --size: {}\n", "", entry.measure);
  }
  text +=
      "\nExit status: 0 ok, 1 failed, 2 wrong usage, 77 skipped: the image or the machine lacks what the step "
      "needs.\n\nExamples:\n  varve-gpu-probe driver\n  varve-gpu-probe gemm --device 1\n"
      "  varve-gpu-probe libraries --library-dir /usr/local/lib/python3.11/site-packages\n\n";
  return text;
}

}  // namespace varve::gpu::probe
