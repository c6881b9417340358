#include "analyzer/usage/internal/user_sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "core/base/errors.h"

namespace varve::usage {
namespace {

constexpr std::byte kExactForm{1};
constexpr std::byte kRegisterForm{2};
constexpr std::uint8_t kMaxRank = 64 - UserSketch::kIndexBits + 1;

}  // namespace

UserSketch UserSketch::parse(ByteView stored) {
  UserSketch sketch;
  if (stored.empty()) return sketch;
  const auto content = stored.subspan(1);
  if (stored[0] == kExactForm && content.size() % 8 == 0 && content.size() / 8 <= kMaxExact) {
    for (std::size_t at = 0; at < content.size(); at += 8)
      sketch.exact_.push_back(load_le<std::uint64_t>(content.data() + at));
    if (std::ranges::adjacent_find(sketch.exact_, std::greater_equal<>()) != sketch.exact_.end())
      fail<CorruptData>("user sketch: hashes out of order");
    return sketch;
  }
  if (stored[0] != kRegisterForm || content.size() != kRegisters)
    fail<CorruptData>("user sketch: neither of its two forms");
  for (const auto byte : content) {
    sketch.registers_.push_back(std::to_integer<std::uint8_t>(byte));
    if (sketch.registers_.back() > kMaxRank) fail<CorruptData>("user sketch: a register is too large");
  }
  return sketch;
}

Bytes UserSketch::bytes() const {
  Bytes stored(1, registers_.empty() ? kExactForm : kRegisterForm);
  for (const auto rank : registers_) append_le(stored, rank);
  for (const auto hash : exact_) append_le(stored, hash);
  return stored;
}

bool UserSketch::add(std::uint64_t hash) {
  bool changed = false;
  if (registers_.empty()) {
    const auto at = std::lower_bound(exact_.begin(), exact_.end(), hash);
    if (at != exact_.end() && *at == hash) return false;
    if (exact_.size() < kMaxExact) {
      exact_.insert(at, hash);
      return true;
    }
    become_registers();
    changed = true;
  }
  add_to_registers(hash, changed);
  return changed;
}

void UserSketch::add_to_registers(std::uint64_t hash, bool& changed) {
  const auto index = std::size_t(hash >> (64 - kIndexBits));
  // The rank is the place of the first one bit behind the index; the guard bit bounds it.
  const auto rest = hash << kIndexBits | std::uint64_t(1) << (kIndexBits - 1);
  const auto rank = std::uint8_t(std::countl_zero(rest) + 1);
  if (rank <= registers_[index]) return;
  registers_[index] = rank;
  changed = true;
}

void UserSketch::become_registers() {
  registers_.assign(kRegisters, 0);
  bool changed = false;
  for (const auto hash : exact_) add_to_registers(hash, changed);
  exact_.clear();
}

void UserSketch::merge(const UserSketch& other) {
  for (const auto hash : other.exact_) add(hash);
  if (other.registers_.empty()) return;
  if (registers_.empty()) become_registers();
  for (std::size_t i = 0; i < kRegisters; ++i) registers_[i] = std::max(registers_[i], other.registers_[i]);
}

std::uint64_t UserSketch::count() const {
  if (registers_.empty()) return exact_.size();
  double sum = 0;
  std::size_t untouched = 0;
  for (const auto rank : registers_) {
    sum += std::ldexp(1.0, -int(rank));
    untouched += rank == 0 ? 1 : 0;
  }
  // Flajolet, Fusy, Gandouet, Meunier 2007; 64-bit hashes need no correction at the upper end.
  const double m = double(kRegisters);
  const double estimate = 0.7213 / (1 + 1.079 / m) * m * m / sum;
  if (estimate <= 2.5 * m && untouched > 0) return std::uint64_t(std::llround(m * std::log(m / double(untouched))));
  return std::uint64_t(std::llround(estimate));
}

}  // namespace varve::usage
