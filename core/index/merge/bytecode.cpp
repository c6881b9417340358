#include "core/index/merge/bytecode.h"

#include "core/base/text/image_path.h"

namespace varve::index {
namespace {

constexpr std::string_view kCacheFolder = "__pycache__";
constexpr std::size_t kFlagsOffset = 4;
constexpr std::size_t kSizeOffset = 12;
constexpr std::uint32_t kByTime = 0, kByHashUnchecked = 1, kByHashChecked = 3;

}  // namespace

std::string source_of_bytecode(std::string_view path) {
  if (!path.ends_with(".pyc")) return "";
  const auto folder = parent_of(path);
  const auto stem = name_of(path).substr(0, name_of(path).find('.'));
  const auto in = name_of(folder) == kCacheFolder ? parent_of(folder) : folder;
  return join_path(in, std::string(stem) + ".py");
}

BytecodeBinding bytecode_binding(std::string_view path, ByteView head, std::int64_t source_seconds,
                                 std::uint64_t source_bytes) {
  if (head.size() < kBytecodeHeadBytes || name_of(parent_of(path)) != kCacheFolder) return BytecodeBinding::kNone;
  const auto flags = load_le<std::uint32_t>(head.data() + kFlagsOffset);
  if (flags == kByHashUnchecked || flags == kByHashChecked) return BytecodeBinding::kHash;
  const bool counts = flags == kByTime &&
                      load_le<std::uint32_t>(head.data() + kBytecodeTimeOffset) == std::uint32_t(source_seconds) &&
                      load_le<std::uint32_t>(head.data() + kSizeOffset) == std::uint32_t(source_bytes);
  return counts ? BytecodeBinding::kTime : BytecodeBinding::kNone;
}

void set_bytecode_time(std::span<std::byte> head, std::int64_t source_seconds) {
  store_le(head.subspan(kBytecodeTimeOffset, sizeof(std::uint32_t)).data(), std::uint32_t(source_seconds));
}

bool set_bytecode_source(std::span<std::byte> head, std::uint32_t source_seconds, std::uint32_t source_bytes) {
  if (head.size() < kBytecodeHeadBytes || load_le<std::uint32_t>(head.data() + kFlagsOffset) != kByTime) return false;
  set_bytecode_time(head, source_seconds);
  store_le(head.subspan(kSizeOffset, sizeof source_bytes).data(), source_bytes);
  return true;
}

}  // namespace varve::index
