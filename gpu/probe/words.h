#pragma once
// The command line of the probe. Read by hand: the probe brings all that it needs along into images of others, and a
// library for this would be larger than the steps.
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace varve::gpu::probe {

struct Words {
  bool help = false;  // asked for; then nothing else is told
  std::string step;   // one of step_entries()
  std::optional<int> device;
  std::size_t size = 0;  // 0: as the step has it
  int repetitions = 9;
  std::vector<std::string> folders;
};

// Says which word is wrong, on one line.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `arguments`: without the program's name. Options may stand before and behind the step, "--option=value" or
// "--option value"; behind "--" there are none. Numbers as strtoll(3) reads them in base 0. Throws WrongUsage.
Words parse_words(const std::vector<std::string>& arguments);

std::string help_text(std::string_view program);

}  // namespace varve::gpu::probe
