#include <algorithm>
#include <array>
#include <cctype>

#include <nlohmann/json.hpp>

#include "analyzer/usage/spool.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// Longest names that make sense; a line has only 4,096 bytes for all of them.
constexpr std::size_t kMaxModuleBytes = 512;
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxVersionBytes = 128;
constexpr std::size_t kMaxWordBytes = 64;
constexpr std::size_t kMaxGpuModels = 16;
constexpr std::size_t kMaxFields = 64;
constexpr std::uint64_t kMaxCount = std::uint64_t(1) << 40;  // seconds, cells, records: what is larger is nonsense

// Top-level members of one object. Values of other kinds than these are kept as kOther: an unknown field may hold
// anything.
struct Field {
  enum class Kind : std::uint8_t { kText, kNumber, kBool, kTexts, kNull, kOther };
  std::string name;
  Kind kind = Kind::kOther;
  std::string text;
  std::uint64_t number = 0;
  bool truth = false;
  std::vector<std::string> texts;
};

// Takes a line apart without building a document: most lines are imports, and there are ten million of them.
class Members {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() {
    return scalar([](Field& field) { field.kind = Field::Kind::kNull; });
  }
  bool boolean(bool value) {
    return scalar([&](Field& field) {
      field.kind = Field::Kind::kBool;
      field.truth = value;
    });
  }
  bool number_integer(number_integer_t) {
    return scalar([](Field&) {});
  }  // negative: no field has such a value
  bool number_unsigned(number_unsigned_t value) {
    return scalar([&](Field& field) {
      field.kind = Field::Kind::kNumber;
      field.number = value;
    });
  }
  bool number_float(number_float_t, const string_t&) {
    return scalar([](Field&) {});
  }
  bool binary(binary_t&) { return false; }
  bool string(string_t& value) {
    if (depth_ == 2 && in_list_ && !fields_.empty() && fields_.back().texts.size() <= kMaxGpuModels) {
      fields_.back().texts.push_back(std::move(value));
      return true;
    }
    return scalar([&](Field& field) {
      field.kind = Field::Kind::kText;
      field.text = std::move(value);
    });
  }
  bool start_object(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(true); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    if (depth_ != 1) return true;
    for (const auto& field : fields_)
      if (field.name == name) return complain("a field is there twice");
    if (fields_.size() >= kMaxFields) return complain("too many fields");
    fields_.emplace_back();
    fields_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
    return complain("not a JSON object in UTF-8");
  }

  const Field* find(std::string_view name) const {
    for (const auto& field : fields_)
      if (field.name == name) return &field;
    return nullptr;
  }
  const char* complaint() const { return complaint_; }

 private:
  template <typename Set>
  bool scalar(Set&& set) {
    if (depth_ == 0) return complain("not a JSON object");
    if (depth_ == 1)
      set(fields_.back());
    else if (depth_ == 2 && in_list_)
      fields_.back().kind = Field::Kind::kOther;  // a list of something else than texts
    return true;
  }
  bool open(bool list) {
    if (depth_ == 0 && list) return complain("not a JSON object");
    ++depth_;
    if (depth_ == 2) {
      in_list_ = list;
      fields_.back().kind = list ? Field::Kind::kTexts : Field::Kind::kOther;
    } else if (depth_ == 3) {
      fields_.back().kind = Field::Kind::kOther;
    }
    return true;
  }
  bool close() {
    --depth_;
    if (depth_ == 1) in_list_ = false;
    return true;
  }
  bool complain(const char* what) {
    if (complaint_ == nullptr) complaint_ = what;
    return false;
  }

  std::vector<Field> fields_;
  std::size_t depth_ = 0;
  bool in_list_ = false;
  const char* complaint_ = nullptr;
};

[[noreturn]] void refuse(std::string_view field, std::string_view why) {
  fail<CorruptData>("spool record: field \"{}\" {}", field, why);
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// "" where the field is absent.
std::string text_of(const Members& members, std::string_view name, std::size_t limit_bytes) {
  const auto* field = members.find(name);
  if (field == nullptr || field->kind == Field::Kind::kNull) return {};
  if (field->kind != Field::Kind::kText) refuse(name, "is not a text");
  if (field->text.size() > limit_bytes) refuse(name, "is too long");
  if (has_control_characters(field->text)) refuse(name, "has control characters");
  return field->text;
}

std::string required_text(const Members& members, std::string_view name, std::size_t limit_bytes) {
  auto text = text_of(members, name, limit_bytes);
  if (text.empty()) refuse(name, "is missing");
  return text;
}

std::uint64_t number_of(const Members& members, std::string_view name) {
  const auto* field = members.find(name);
  if (field == nullptr) return 0;
  if (field->kind != Field::Kind::kNumber) refuse(name, "is not a whole number");
  if (field->number > kMaxCount) refuse(name, "is too large");
  return field->number;
}

bool truth_of(const Members& members, std::string_view name) {
  const auto* field = members.find(name);
  if (field == nullptr) return false;
  if (field->kind != Field::Kind::kBool) refuse(name, "is neither true nor false");
  return field->truth;
}

std::string hex_of(const Members& members, std::string_view name, std::size_t digits) {
  auto text = text_of(members, name, digits);
  if (text.empty()) return text;
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != digits || !std::all_of(text.begin(), text.end(), is_hex))
    refuse(name, "is not the expected number of hexadecimal digits");
  return text;
}

// A dotted name, never a path: paths of users do not belong into a spool.
std::string dotted_of(const Members& members, std::string_view name, bool required) {
  auto text = required ? required_text(members, name, kMaxModuleBytes) : text_of(members, name, kMaxModuleBytes);
  if (text.empty()) return text;
  if (text.find_first_of("/\\ ") != std::string::npos || text.front() == '.' || text.back() == '.' ||
      text.find("..") != std::string::npos)
    refuse(name, "is not a dotted module name");
  return text;
}

template <typename Value, std::size_t N>
Value choice_of(const Members& members, std::string_view name,
                const std::array<std::pair<std::string_view, Value>, N>& choices) {
  const auto text = required_text(members, name, kMaxWordBytes);
  for (const auto& [word, value] : choices)
    if (word == text) return value;
  refuse(name, "has an unknown value");
}

constexpr std::array<std::pair<std::string_view, Directness>, 3> kDirectness{
    {{"direct", Directness::kDirect}, {"transitive", Directness::kTransitive}, {"static", Directness::kStatic}}};
constexpr std::array<std::pair<std::string_view, Copy>, 3> kCopies{
    {{"image", Copy::kImage}, {"session", Copy::kSession}, {"unknown", Copy::kUnknown}}};
constexpr std::array<std::pair<std::string_view, InstallReason>, 5> kReasons{{{"upgrade", InstallReason::kUpgrade},
                                                                              {"downgrade", InstallReason::kDowngrade},
                                                                              {"same", InstallReason::kSame},
                                                                              {"new", InstallReason::kNew},
                                                                              {"removed", InstallReason::kRemoved}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kOperations{{{"open", false}, {"exec", true}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kExits{{{"ok", true}, {"error", false}}};

StartRecord start_of(const Members& members) {
  if (number_of(members, "v") != 1) refuse("v", "is not a version that is known");
  StartRecord start;
  start.session = hex_of(members, "session", 32);
  start.process = hex_of(members, "process", 16);
  if (start.session.empty()) refuse("session", "is missing");
  if (start.process.empty()) refuse("process", "is missing");
  start.parent = hex_of(members, "parent", 16);
  const auto day = parse_day(required_text(members, "day", 10));
  if (!day) refuse("day", "is not a date");
  start.day = *day;
  if (const auto image = text_of(members, "image", 128); !image.empty()) {
    start.image = Digest::try_parse(image);
    if (!start.image) refuse("image", "is not a SHA-256 digest");
  }
  start.writer = required_text(members, "writer", kMaxWordBytes);
  start.user = hex_of(members, "user", 32);
  start.python = text_of(members, "python", kMaxWordBytes);
  start.platform = text_of(members, "platform", kMaxWordBytes);
  start.main = text_of(members, "main", kMaxWordBytes);
  return start;
}

ImportRecord import_of(const Members& members) {
  ImportRecord import;
  import.module = dotted_of(members, "m", true);
  import.how = choice_of(members, "how", kDirectness);
  import.by = dotted_of(members, "by", false);
  if (members.find("site") != nullptr) import.copy = choice_of(members, "site", kCopies);
  import.distribution = text_of(members, "d", kMaxNameBytes);
  import.version = text_of(members, "ver", kMaxVersionBytes);
  return import;
}

InstallRecord install_of(const Members& members) {
  InstallRecord install;
  install.distribution = required_text(members, "d", kMaxNameBytes);
  install.from = text_of(members, "from", kMaxVersionBytes);
  install.to = text_of(members, "to", kMaxVersionBytes);
  install.why = choice_of(members, "why", kReasons);
  install.tool = text_of(members, "tool", kMaxWordBytes);
  return install;
}

FileRecord file_of(const Members& members) {
  const auto* path = members.find("p");
  if (path == nullptr || path->kind != Field::Kind::kText) refuse("p", "is not a text");
  if (path->text.size() < 2 || path->text.front() != '/') refuse("p", "is not an absolute path");
  if (path->text.find('\0') != std::string::npos) refuse("p", "has a zero byte");
  return {.path = path->text.substr(
              path->text.find_first_not_of('/') == std::string::npos ? 1 : path->text.find_first_not_of('/')),
          .executed = choice_of(members, "op", kOperations)};
}

GpuRecord gpu_of(const Members& members) {
  GpuRecord gpu{.present = truth_of(members, "present"),
                .used = truth_of(members, "used"),
                .models = {},
                .driver = text_of(members, "driver", kMaxWordBytes)};
  const auto* models = members.find("models");
  if (models == nullptr) return gpu;
  if (models->kind != Field::Kind::kTexts) refuse("models", "is not a list of texts");
  if (models->texts.size() > kMaxGpuModels) refuse("models", "has too many entries");
  for (const auto& model : models->texts)
    if (model.empty() || model.size() > kMaxVersionBytes || has_control_characters(model))
      refuse("models", "has an entry that is no name");
  gpu.models = models->texts;
  return gpu;
}

BeatRecord beat_of(const Members& members) {
  return {.cells = number_of(members, "cells"),
          .busy_seconds = number_of(members, "busy"),
          .idle_seconds = number_of(members, "idle"),
          .gpu_used = truth_of(members, "gpu_used")};
}

decltype(SpoolRecord::what) what_of(const Members& members) {
  const auto kind = required_text(members, "t", kMaxWordBytes);
  if (kind == "import") return import_of(members);
  if (kind == "start") return start_of(members);
  if (kind == "launch") return LaunchRecord{};
  if (kind == "failed")
    return FailedRecord{.module = dotted_of(members, "m", true), .how = choice_of(members, "how", kDirectness)};
  if (kind == "install") return install_of(members);
  if (kind == "file") return file_of(members);
  if (kind == "gpu") return gpu_of(members);
  if (kind == "beat") return beat_of(members);
  if (kind == "end")
    return EndRecord{.ok = choice_of(members, "exit", kExits), .all_files = truth_of(members, "all_files")};
  if (kind == "full") return FullRecord{.dropped = number_of(members, "dropped")};
  return UnknownRecord{.kind = kind};
}

}  // namespace

SpoolRecord parse_spool_line(std::string_view line) {
  if (line.size() > kMaxSpoolLineBytes) fail<CorruptData>("spool record: longer than {} bytes", kMaxSpoolLineBytes);
  Members members;
  if (!nlohmann::json::sax_parse(line.begin(), line.end(), &members))
    fail<CorruptData>("spool record: {}", members.complaint() != nullptr ? members.complaint() : "not a JSON object");
  SpoolRecord record{.at_seconds = 0, .what = what_of(members)};
  // A newer writer's kinds may mean something else by "at".
  if (!std::holds_alternative<UnknownRecord>(record.what)) record.at_seconds = number_of(members, "at");
  return record;
}

}  // namespace varve::usage
