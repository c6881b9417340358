#include "fuse/session/gpus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxVersionFileBytes = 4096;
using Version = std::array<std::uint32_t, 3>;

// The first driver branch that runs each CUDA version (CUDA Toolkit Release Notes, "CUDA Toolkit and Corresponding
// Driver Versions").
constexpr std::pair<std::uint32_t, std::array<std::uint32_t, 2>> kCudaOfDriver[] = {
    {410, {10, 0}}, {418, {10, 1}}, {440, {10, 2}}, {450, {11, 0}}, {455, {11, 1}}, {460, {11, 2}},
    {465, {11, 3}}, {470, {11, 4}}, {495, {11, 5}}, {510, {11, 6}}, {515, {11, 7}}, {520, {11, 8}},
    {525, {12, 0}}, {530, {12, 1}}, {535, {12, 2}}, {545, {12, 3}}, {550, {12, 4}}, {555, {12, 5}},
    {560, {12, 6}}, {565, {12, 7}}, {570, {12, 8}}, {575, {12, 9}}, {580, {13, 0}},
};
constexpr std::uint32_t kNewestKnownDriver = 580;

std::optional<Version> parse_version(std::string_view text) {
  if (text.empty()) return std::nullopt;
  Version version{};
  for (std::size_t part = 0; part < version.size() && !text.empty(); ++part) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version[part]);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(std::size_t(end - text.data()));
    if (text.starts_with('.')) {
      text.remove_prefix(1);
    } else if (!text.empty()) {
      return std::nullopt;
    }
  }
  return version;
}

// Absent for a branch that is newer than the table: it runs whatever CUDA it may be asked for.
std::optional<Version> cuda_of(const Version& driver) {
  if (driver[0] > kNewestKnownDriver) return std::nullopt;
  Version cuda{};
  for (const auto& [branch, version] : kCudaOfDriver)
    if (branch <= driver[0]) cuda = {version[0], version[1], 0};
  return cuda;
}

bool compare(const Version& have, std::string_view how, const Version& wanted) {
  if (how == ">=") return have >= wanted;
  if (how == "<=") return have <= wanted;
  if (how == ">") return have > wanted;
  if (how == "<") return have < wanted;
  if (how == "!=") return have != wanted;
  return have == wanted;
}

bool term_is_met(std::string_view term, const Version& driver) {
  const auto name_end = term.find_first_of("<>=!");
  if (name_end == term.npos) return true;
  const auto name = term.substr(0, name_end);
  const auto value_begin = term.find_first_not_of("<>=!", name_end);
  if (value_begin == term.npos) return true;
  const auto wanted = parse_version(term.substr(value_begin));
  if (!wanted || (name != "driver" && name != "cuda")) return true;
  const auto have = name == "driver" ? std::optional(driver) : cuda_of(driver);
  return !have || compare(*have, term.substr(name_end, value_begin - name_end), *wanted);
}

}  // namespace

std::vector<std::string> select_gpus(const CdiRegistry& registry, std::string_view wanted) {
  if (wanted == "none" || wanted == "0") return {};
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), count);
  const bool all = wanted == "all";
  if (!all && (error != std::errc() || end != wanted.data() + wanted.size()))
    fail<UsageError>("--gpus {:.100}: write all, none, or how many; --device names single ones", wanted);
  const auto names = registry.devices(kGpuKind);
  if (names.empty())
    fail<NotFound>(
        "--gpus {}: this machine describes no GPU in /etc/cdi or /var/run/cdi{}; `nvidia-ctk cdi generate "
        "--output=/etc/cdi/nvidia.yaml` does, where the driver and NVIDIA's container toolkit are installed",
        wanted, registry.problems().empty() ? "" : " that can be read (" + registry.problems().front() + ")");
  const auto qualified = [](std::string_view name) { return std::string(kGpuKind) + "=" + std::string(name); };
  if (all && std::ranges::find(names, "all") != names.end()) return {qualified("all")};
  std::vector<std::pair<std::uint32_t, std::string>> numbered;  // "10" comes after "9"
  for (const auto& name : names) {
    std::uint32_t number = 0;
    const auto [last, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (bad == std::errc() && last == name.data() + name.size()) numbered.emplace_back(number, name);
  }
  std::ranges::sort(numbered);
  if (all && numbered.empty())
    fail<NotFound>("--gpus all: the GPUs that this machine describes have no numbers; name them with --device");
  if (!all && numbered.size() < count)
    fail<NotFound>("--gpus {}: this machine describes {} GPU{}", count, numbered.size(),
                   numbered.size() == 1 ? "" : "s");
  if (!all) numbered.resize(count);
  std::vector<std::string> selected;
  for (const auto& [number, name] : numbered) selected.push_back(qualified(name));
  return selected;
}

std::string installed_driver_version() {
  const auto bytes = read_file_if_there("/sys/module/nvidia/version", kMaxVersionFileBytes);
  if (!bytes) return {};
  const auto text = as_text(*bytes);
  return std::string(text.substr(0, text.find_first_of(" \n")));
}

std::vector<std::string> unmet_requirements(const std::vector<std::string>& environment, std::string_view driver) {
  const auto version = parse_version(driver);
  if (!version) return {};
  std::vector<std::string> unmet;
  for (const auto& one : environment) {
    const auto equals = one.find('=');
    if (equals == one.npos) continue;
    const auto name = std::string_view(one).substr(0, equals);
    const auto value = std::string_view(one).substr(equals + 1);
    if (name == "NVIDIA_DISABLE_REQUIRE" && (value == "1" || value == "true")) return {};
    // Of other machines: the toolkit passes it over as well.
    if (!name.starts_with("NVIDIA_REQUIRE_") || name.starts_with("NVIDIA_REQUIRE_JETPACK")) continue;
    const auto alternatives = split_words(value, " ");
    const auto met = [&](std::string_view alternative) {
      return std::ranges::all_of(split_words(alternative, ","),
                                 [&](std::string_view term) { return term_is_met(term, *version); });
    };
    if (!alternatives.empty() && std::ranges::none_of(alternatives, met))
      unmet.push_back(fmt::format("the image asks for {}={:.300}, this machine's driver is {}", name, value, driver));
  }
  return unmet;
}

}  // namespace varve::fuse
