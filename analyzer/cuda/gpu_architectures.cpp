#include "analyzer/cuda/gpu_architectures.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "core/base/text/strings.h"

namespace varve::cuda {
namespace {

struct Model {
  std::string_view chip;  // letters and digits that a word of the model's name begins with
  std::uint32_t architecture;
};

// Letters behind the digits are forms of the same chip (A100X, A10G, L40S, V100S, T4G).
constexpr std::array kModels{
    Model{"K40", 35},   Model{"K20", 35},    Model{"K80", 37},   Model{"M10", 50},   Model{"M4", 52},
    Model{"M6", 52},    Model{"M40", 52},    Model{"M60", 52},   Model{"P100", 60},  Model{"GP100", 60},
    Model{"P4", 61},    Model{"P6", 61},     Model{"P40", 61},   Model{"V100", 70},  Model{"GV100", 70},
    Model{"T4", 75},    Model{"T10", 75},    Model{"T400", 75},  Model{"T500", 75},  Model{"T600", 75},
    Model{"T1000", 75}, Model{"T1200", 75},  Model{"A100", 80},  Model{"A30", 80},   Model{"A800", 80},
    Model{"A2", 86},    Model{"A10", 86},    Model{"A16", 86},   Model{"A40", 86},   Model{"A400", 86},
    Model{"A1000", 86}, Model{"A2000", 86},  Model{"A3000", 86}, Model{"A4000", 86}, Model{"A4500", 86},
    Model{"A5000", 86}, Model{"A5500", 86},  Model{"A6000", 86}, Model{"L2", 89},    Model{"L4", 89},
    Model{"L20", 89},   Model{"L40", 89},    Model{"H20", 90},   Model{"H100", 90},  Model{"H200", 90},
    Model{"H800", 90},  Model{"GH200", 90},  Model{"B100", 100}, Model{"B200", 100}, Model{"GB200", 100},
    Model{"B300", 103}, Model{"GB300", 103}, Model{"GB10", 121},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "A10" of "A10G", "H100" of "H100": without what letters follow the digits.
std::string_view chip_of(std::string_view word) {
  const auto digits = word.find_first_of("0123456789");
  if (digits == word.npos) return word;
  return word.substr(0, std::min(word.size(), word.find_first_not_of("0123456789", digits)));
}

bool has_word(const std::vector<std::string_view>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// "RTX 3090": 30 of the four digits. 0: there are none.
std::uint32_t series_of(const std::vector<std::string_view>& words) {
  for (const auto word : words)
    if (const auto chip = chip_of(word); chip.size() == 4 && std::ranges::all_of(chip, is_digit))
      return std::uint32_t(chip[0] - '0') * 10 + std::uint32_t(chip[1] - '0');
  return 0;
}

// Workstations and games: the numbers of their products come again in every generation.
std::optional<std::uint32_t> of_product_line(const std::vector<std::string_view>& words) {
  const auto series = series_of(words);
  if (has_word(words, "RTX") && series != 0) {
    if (has_word(words, "Blackwell")) return 120;
    if (has_word(words, "Ada")) return 89;
    if (has_word(words, "Quadro")) return 75;
    if (series == 20) return 75;
    if (series == 30) return 86;
    if (series == 40) return 89;
    if (series == 50) return 120;
  }
  if (has_word(words, "GTX") && series == 16) return 75;
  if (has_word(words, "GTX") && series == 10) return 61;
  if (has_word(words, "TITAN") && has_word(words, "RTX")) return 75;
  if (has_word(words, "TITAN") && has_word(words, "V")) return 70;
  if (has_word(words, "TITAN") && has_word(words, "Xp")) return 61;
  return std::nullopt;
}

}  // namespace

const GpuArchitectures& known_gpu_architectures() {
  static const GpuArchitectures known{30, 32, 35, 37, 50, 52, 53,  60,  61,  62,  70,  72, 75,
                                      80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
  return known;
}

std::string gpu_architecture_name(std::uint32_t architecture) { return fmt::format("sm_{}", architecture); }

std::string names_of(const GpuArchitectures& architectures) {
  std::string names;
  for (const auto one : architectures) names += (names.empty() ? "" : ", ") + gpu_architecture_name(one);
  return names;
}

std::optional<std::uint32_t> gpu_architecture_named(std::string_view name) {
  if (!name.starts_with("sm_")) return std::nullopt;
  name.remove_prefix(3);
  if (name.ends_with('a') || name.ends_with('f')) name.remove_suffix(1);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || name.starts_with('0') ||
      !known_gpu_architectures().contains(number))
    return std::nullopt;
  return number;
}

std::optional<std::uint32_t> gpu_architecture_of_model(std::string_view model) {
  const auto words = split_words(model, " -");
  if (const auto found = of_product_line(words)) return found;
  for (const auto word : words) {
    const auto known = std::ranges::find(kModels, chip_of(word), &Model::chip);
    if (known != kModels.end()) return known->architecture;
  }
  return std::nullopt;
}

bool runs_machine_code(std::uint32_t gpu, std::uint32_t code, char variant) {
  const auto runs = [variant](std::uint32_t on, std::uint32_t made_for) {
    if (variant == 'a') return on == made_for;
    return on / 10 == made_for / 10 && on % 10 >= made_for % 10;
  };
  // Thor was 10.1 up to CUDA 12 and is 11.0 since: under either name it may be asked for.
  constexpr auto renamed = [](std::uint32_t number) { return number == 101 ? 110 : number; };
  return runs(gpu, code) || runs(renamed(gpu), renamed(code));
}

}  // namespace varve::cuda
