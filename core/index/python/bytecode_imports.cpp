#include "core/index/python/bytecode_imports.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "core/index/merge/bytecode.h"

namespace varve::index {
namespace {

constexpr unsigned kMaxDepth = 100;  // of objects in objects
// What is behind them is taken for nothing: a hostile file has an object in each byte.
constexpr std::size_t kMaxItems = 65'536;     // of the constants, or of the names
constexpr std::size_t kMaxItemsWithin = 256;  // of a tuple in them
constexpr std::size_t kMaxKept = 262'144;     // items of all tuples
constexpr std::size_t kMaxReferred = 262'144;

// How a version's code is written. An instruction is two bytes, code and argument.
struct Version {
  std::uint16_t magic;
  unsigned numbers;  // of 4 bytes, in front of a code object's bytes
  std::uint8_t import_name, load_const, extended_arg, jump_forward;
  std::array<std::uint8_t, 4> jump_if;  // forward, by what was computed
  bool ifs_have_distances;              // else a place; JUMP_FORWARD always has one
  unsigned unit;                        // of places and distances, bytes
  unsigned room_behind_if;              // from which a distance counts, bytes
};
// What does not match an exception jumps as well, in 3.9 and 3.10 by a code of its own.
constexpr std::array<std::uint8_t, 4> kIfsOf38{114, 115, 114, 115}, kOldIfs{114, 115, 121, 121},
    kIfs{114, 115, 128, 129};
constexpr auto kVersions = std::to_array<Version>({
    {3413, 6, 108, 100, 144, 110, kIfsOf38, false, 1, 0},      // 3.8
    {3425, 6, 108, 100, 144, 110, kOldIfs, false, 1, 0},       // 3.9
    {3439, 6, 108, 100, 144, 110, kOldIfs, false, 2, 0},       // 3.10
    {3495, 5, 108, 100, 144, 110, kIfs, true, 2, 0},           // 3.11
    {3531, 5, 108, 100, 144, 110, kIfs, true, 2, 0},           // 3.12
    {3571, 5, 75, 83, 71, 79, {97, 98, 99, 100}, true, 2, 2},  // 3.13
});

// An object, as far as it can matter here.
struct Value {
  std::int64_t number = 0;
  std::string_view text = {};
  std::shared_ptr<const std::vector<Value>> tuple = nullptr;  // shared by all that refer to it

  std::span<const Value> items() const { return tuple ? std::span(*tuple) : std::span<const Value>(); }
};

struct Damaged {};

// Objects one after the other; each that others may refer to gets the next number.
class Marshal {
 public:
  Marshal(ByteView bytes, const Version& version) : bytes_(bytes), version_(version) {}

  struct Code {
    ByteView instructions;
    Value constants, names;
  };
  // The module's own.
  Code module_code() {
    const auto type = std::uint8_t(take(1).front());
    if ((type & ~kIsReferred) != 'c') throw Damaged();
    if ((type & kIsReferred) != 0) refer();
    take(4 * version_.numbers);
    const auto code = std::uint8_t(take(1).front());
    if ((code & ~kIsReferred) != 's') throw Damaged();
    if ((code & kIsReferred) != 0) refer();
    const auto instructions = take(take_count());
    return {.instructions = instructions, .constants = object(0), .names = object(0)};
  }

 private:
  static constexpr std::uint8_t kIsReferred = 0x80;

  void refer() {
    if (referred_.size() == kMaxReferred) throw Damaged();
    referred_.emplace_back();
  }
  ByteView take(std::size_t count) {
    if (count > bytes_.size()) throw Damaged();
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::uint32_t take_number() { return load_le<std::uint32_t>(take(4).data()); }
  // Of what takes a byte at least each.
  std::size_t take_count() {
    const auto count = take_number();
    if (count > bytes_.size()) throw Damaged();
    return count;
  }
  std::size_t take_small_count() { return std::uint8_t(take(1).front()); }

  Value items(std::size_t count, unsigned depth) {
    std::vector<Value> values;
    for (std::size_t i = 0; i < count; ++i) {
      auto value = object(depth + 1);
      if (i >= (depth == 0 ? kMaxItems : kMaxItemsWithin) || kept_ == kMaxKept) continue;
      values.push_back(std::move(value));
      ++kept_;
    }
    if (values.empty()) return {};
    return {.tuple = std::make_shared<const std::vector<Value>>(std::move(values))};
  }

  Value object(unsigned depth) {
    const auto type = std::uint8_t(take(1).front());
    if (type == 'r') {
      const auto number = take_number();
      if (number >= referred_.size()) throw Damaged();
      return referred_[number];
    }
    const bool is_referred = (type & kIsReferred) != 0;
    const auto number = referred_.size();
    if (is_referred) refer();
    auto value = content(type & ~kIsReferred, depth);
    if (is_referred) referred_[number] = value;
    return value;
  }

  Value content(int type, unsigned depth) {
    if (depth > kMaxDepth) throw Damaged();
    switch (type) {
      case '0':
      case 'N':
      case 'F':
      case 'T':
      case 'S':
      case '.':
        return {};
      case 'i':
        return {.number = std::int32_t(take_number())};
      case 'I':
      case 'g':
        take(8);
        return {};
      case 'y':
        take(16);
        return {};
      case 'f':
        take(take_small_count());
        return {};
      case 'x':
        take(take_small_count());
        take(take_small_count());
        return {};
      case 'l':
        skip_long();
        return {};
      case 's':
      case 't':
      case 'u':
      case 'a':
      case 'A':
        return {.text = as_text(take(take_count()))};
      case 'z':
      case 'Z':
        return {.text = as_text(take(take_small_count()))};
      case ')':
        return items(take_small_count(), depth);
      case '(':
      case '[':
      case '<':
      case '>':
        return items(take_count(), depth);
      case '{':
        skip_dict(depth);
        return {};
      case 'c':
        skip_code(depth);
        return {};
      default:
        throw Damaged();
    }
  }

  void skip_long() {
    const auto digits = std::int64_t(std::int32_t(take_number()));
    const auto bytes = std::uint64_t(digits < 0 ? -digits : digits) * 2;
    take(bytes);
  }
  void skip_dict(unsigned depth) {
    while (bytes_.empty() || std::uint8_t(bytes_.front()) != '0') {
      object(depth + 1);
      object(depth + 1);
    }
    take(1);
  }
  void skip_code(unsigned depth) {
    take(4 * version_.numbers);
    // Before 3.11: code, constants, names, three kinds of variables, file, name, (first line), line table.
    // Since: code, constants, names, variables and their kinds, file, two names, (first line), two tables.
    const bool is_old = version_.numbers == 6;
    for (int i = 0; i < 8; ++i) object(depth + 1);
    take(4);
    for (int i = 0; i < (is_old ? 1 : 2); ++i) object(depth + 1);
  }

  ByteView bytes_;
  const Version& version_;
  std::vector<Value> referred_;
  std::size_t kept_ = 0;
};

class Imports {
 public:
  Imports(const Version& version, Marshal::Code code) : version_(version), code_(std::move(code)) {}

  std::vector<PythonImport> all() {
    std::uint64_t decided_to = 0;  // up to here a condition decides what runs
    std::uint32_t argument = 0;
    for (std::uint64_t at = 0; at + 2 <= code_.instructions.size() && found_.size() < kMaxImports; at += 2) {
      const auto code = std::uint8_t(code_.instructions[at]);
      argument = argument << 8 | std::uint8_t(code_.instructions[at + 1]);
      if (code == version_.extended_arg) continue;
      const auto next = at + 2;
      if (std::ranges::find(version_.jump_if, code) != version_.jump_if.end())
        // One that lies in what another decides on may lead further: `if a or b:`.
        decided_to = std::max(
            decided_to, forward(next, version_.ifs_have_distances ? next + version_.room_behind_if : 0, argument));
      else if (code == version_.jump_forward && next == decided_to)
        decided_to = forward(next, next, argument);  // "else" lies between
      else if (code == version_.load_const)
        before_last_ = std::exchange(last_, constant(argument));
      else if (code == version_.import_name && next > decided_to)
        add(argument);
      argument = 0;
    }
    return std::move(found_);
  }

 private:
  // Where a jump leads; `next` if that is back or nowhere.
  std::uint64_t forward(std::uint64_t next, std::uint64_t from, std::uint32_t argument) const {
    const auto to = from + std::uint64_t(argument) * version_.unit;
    return to > next && to <= code_.instructions.size() ? to : next;
  }

  void add(std::uint32_t argument) {
    PythonImport import{.name = name(argument), .members = {}};
    if (before_last_ != nullptr) import.level = std::uint32_t(std::clamp<std::int64_t>(before_last_->number, 0, 255));
    if (last_ != nullptr)
      for (const auto& item : last_->items())
        if (!item.text.empty() && members_++ < kMaxImportMembers) import.members.push_back(item.text);
    if (!import.name.empty() || import.level > 0) found_.push_back(std::move(import));
  }

  const Value* constant(std::uint32_t number) const {
    const auto constants = code_.constants.items();
    return number < constants.size() ? &constants[number] : nullptr;
  }
  std::string_view name(std::uint32_t number) const {
    const auto names = code_.names.items();
    return number < names.size() ? names[number].text : std::string_view();
  }

  const Version& version_;
  const Marshal::Code code_;
  const Value *before_last_ = nullptr, *last_ = nullptr;  // constants
  std::vector<PythonImport> found_;
  std::size_t members_ = 0;
};

}  // namespace

std::optional<std::vector<PythonImport>> imports_of(ByteView bytecode) {
  if (bytecode.size() < kBytecodeHeadBytes || bytecode[2] != std::byte('\r') || bytecode[3] != std::byte('\n'))
    return std::nullopt;
  const auto version = std::ranges::find(kVersions, load_le<std::uint16_t>(bytecode.data()),
                                         [](const Version& one) { return one.magic; });
  if (version == kVersions.end()) return std::nullopt;
  try {
    return Imports(*version, Marshal(bytecode.subspan(kBytecodeHeadBytes), *version).module_code()).all();
  } catch (const Damaged&) {
    return std::nullopt;
  }
}

}  // namespace varve::index
