#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/byte_codec.h"
#include "core/index/format/layer_map.h"

namespace varve::index {
namespace {

constexpr std::string_view kRangesMagic = "VRVRNG1\n";
constexpr std::uint64_t kMaxDeviceBytes = 0xFFFFFFFFull * kTreeBlockBytes;
constexpr std::uint64_t kMaxLayer = 65'534;        // an EROFS device number is one more
constexpr std::uint64_t kMinDeviceRangeBytes = 4;  // encoded

// "" if all is well.
std::string_view fault(const RangesDevice& device) {
  if (device.bytes % kTreeBlockBytes != 0 || device.bytes > kMaxDeviceBytes) return "impossible size";
  std::uint64_t previous_end = 0;
  for (const auto& range : device.ranges) {
    if (range.length == 0 || range.device_offset < previous_end ||
        !ByteRange{range.device_offset, range.length}.fits_in(device.bytes))
      return "ranges that overlap or lie outside";
    if (range.layer > kMaxLayer || !ByteRange{range.stream_offset, range.length}.fits_in(kMaxStreamBytes))
      return "a range outside its layer";
    previous_end = range.device_offset + range.length;
  }
  return "";
}

}  // namespace

Bytes RangesDevice::encode() const {
  if (const auto reason = fault(*this); !reason.empty())
    fail<CorruptData>("ranges device of {} bytes: {}", bytes, reason);
  Bytes out = to_bytes(as_bytes(kRangesMagic));
  append_le(out, bytes);
  append_le(out, std::uint64_t(ranges.size()));
  std::uint64_t device_end = 0;
  std::uint64_t stream_end = 0;
  for (const auto& range : ranges) {
    append_varint(out, range.device_offset - device_end);
    append_varint(out, range.layer);
    append_varint(out, zigzag(std::int64_t(range.stream_offset - stream_end)));
    append_varint(out, range.length);
    device_end = range.device_offset + range.length;
    stream_end = range.stream_offset + range.length;
  }
  return out;
}

RangesDevice RangesDevice::decode(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes, what);
  reader.magic(kRangesMagic);
  RangesDevice device;
  device.bytes = reader.integer<std::uint64_t>();
  const auto count = reader.integer<std::uint64_t>();
  if (device.bytes > kMaxDeviceBytes) reader.corrupt("impossible size");
  if (count > reader.left() / kMinDeviceRangeBytes) reader.corrupt("more ranges than bytes for them");
  device.ranges.resize(count);
  std::uint64_t device_end = 0;
  std::uint64_t stream_end = 0;
  for (auto& range : device.ranges) {
    range.device_offset = device_end + reader.varint_up_to(device.bytes - device_end, "a range outside the device");
    range.layer = std::uint32_t(reader.varint_up_to(kMaxLayer, "a layer that cannot be there"));
    range.stream_offset = stream_end + std::uint64_t(unzigzag(reader.varint()));
    range.length = reader.varint_up_to(device.bytes - range.device_offset, "a range outside the device");
    if (!ByteRange{range.stream_offset, range.length}.fits_in(kMaxStreamBytes))
      reader.corrupt("a range outside its layer");
    device_end = range.device_offset + range.length;
    stream_end = range.stream_offset + range.length;
  }
  reader.end();
  if (const auto reason = fault(device); !reason.empty()) reader.corrupt(reason);
  return device;
}

}  // namespace varve::index
