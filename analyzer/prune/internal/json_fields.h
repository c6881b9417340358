#pragma once
// Reads a JSON document of ours that people may have edited: every field is there, has its type and is within limits,
// and no field is unknown.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace varve::prune::internal {

inline constexpr std::size_t kMaxText = 64u << 10;       // of one string
inline constexpr std::size_t kMaxListItems = 1'000'000;  // of one list
inline constexpr std::size_t kMaxDocumentValues = 8'000'000;
inline constexpr int kMaxDocumentDepth = 16;

// Throws CorruptData naming `what` and the place for anything that is no JSON object, and Unsupported beyond the
// limits.
nlohmann::json parse_document(std::string_view text, std::size_t limit_bytes, std::string_view what);

// One object of the document. The document must outlive it. All functions throw CorruptData naming the document and the
// field ("verdicts[3].bytes").
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string what, std::string path);

  // Refuses fields of other names.
  void only(std::initializer_list<std::string_view> names) const;
  bool has(std::string_view name) const { return object_.contains(name); }

  std::string text(std::string_view name, std::size_t limit = kMaxText) const;
  std::uint64_t number(std::string_view name) const;
  double real(std::string_view name, double least, double most) const;
  bool flag(std::string_view name) const;
  std::int32_t day(std::string_view name) const;  // "2026-11-21"; null is 0
  std::vector<std::string> texts(std::string_view name) const;
  std::map<std::string, std::string> text_map(std::string_view name) const;
  Fields object(std::string_view name) const;
  void each(std::string_view name, const std::function<void(const Fields&)>& use) const;
  // For what only the caller can see to be wrong.
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;

 private:
  const nlohmann::json& member(std::string_view name) const;
  const nlohmann::json& list(std::string_view name) const;
  std::string place(std::string_view name) const;

  const nlohmann::json& object_;
  std::string what_, path_;
};

nlohmann::json day_value(std::int32_t day);  // null for 0

}  // namespace varve::prune::internal
