#include "indexer/internal/layer_tar_writer.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/threads/parallel.h"
#include "core/base/zeros.h"
#include "core/index/merge/bytecode.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kFeedBytes = 256 * 1024;  // headers and small files go to the writer together
constexpr unsigned kMaxDecoders = 4;

codec::TarEntry tar_entry(const UnitEntry& unit) {
  codec::TarEntry tar;
  tar.name = unit.path.empty() ? "." : std::string(unit.path);
  if (unit.added != nullptr) {
    tar.mode = unit.added->mode;
    tar.mtime_seconds = unit.mtime_seconds();
    tar.size = unit.added->content.size();
    return tar;
  }
  const auto& entry = *unit.entry;
  tar.type = unit.link_of.empty() ? entry.type : FileType::kHardLink;
  tar.link_name = unit.link_of.empty() ? entry.symlink_target : std::string(unit.link_of);
  tar.mode = entry.mode;
  tar.uid = entry.uid;
  tar.gid = entry.gid;
  tar.mtime_seconds = unit.mtime_seconds();
  tar.mtime_nanoseconds = unit.mtime_nanoseconds();
  tar.device_major = entry.device_major;
  tar.device_minor = entry.device_minor;
  if (tar.type == FileType::kRegular) tar.size = entry.size;
  if (unit.link_of.empty()) tar.xattrs = entry.xattrs;
  return tar;
}

}  // namespace

bool has_content(const UnitEntry& unit) {
  return unit.added == nullptr && unit.link_of.empty() && unit.entry->type == FileType::kRegular &&
         unit.entry->size != 0;
}

unsigned decoders_of(const LayerWriterOptions& options) { return std::min(jobs_or_cores(options.jobs), kMaxDecoders); }

WrittenLayer LayerTarWriter::write(const LayerPlan& plan, const LayerWriter::Sink& sink) {
  std::vector<index::TreeRun> runs;
  for (const auto& unit : plan.entries)
    if (has_content(unit)) prepare_runs(origin_, spooled_, unit.path, *unit.entry, work_.cancel, runs);
  ContentFeed feed(origin_, spooled_, runs, decoders_of(options_), work_.cancel);
  LayerWriter writer(plan.name, options_, sink,
                     [this](const std::string& name, const Digest& content) { check_content(name, content); });
  codec::TarWriter tar([&](ByteView bytes) { collect(writer, bytes); });
  for (const auto& unit : plan.entries) write_entry(tar, feed, unit);
  tar.finish();
  flush(writer);
  auto written = writer.finish();
  if (!expected_.empty()) throw std::logic_error("the writer saw fewer files than the tar has");
  return written;
}

void LayerTarWriter::write_entry(codec::TarWriter& tar, ContentFeed& feed, const UnitEntry& unit) {
  const auto entry = tar_entry(unit);
  tar.begin(entry);
  if (unit.added != nullptr) {
    if (entry.size != 0) expected_.push_back({.path = unit.path, .content = digest_of(unit.added->content)});
    return tar.content(as_bytes(unit.added->content));
  }
  if (!has_content(unit)) return;
  expected_.push_back({.path = unit.path, .content = unit.content()});
  if (unit.set_back != nullptr && unit.set_back->content) return give_bytecode(tar, feed, unit);
  std::uint64_t at = 0;
  for (const auto& run : unit.entry->runs) {
    if (run.run.file_offset < at || !ByteRange{run.run.file_offset, run.run.length}.fits_in(entry.size))
      fail<CorruptData>("{}: its content is out of order in the index", unit.path);
    give_zeros(tar, run.run.file_offset - at);
    give_content(tar, feed, run.run.length);
    at = run.run.file_offset + run.run.length;
  }
  give_zeros(tar, entry.size - at);
}

void LayerTarWriter::give_bytecode(codec::TarWriter& tar, ContentFeed& feed, const UnitEntry& unit) {
  Bytes head;
  feed.take(index::kBytecodeHeadBytes, work_.progress, [&](ByteView part) { append(head, part); });
  index::set_bytecode_time(head, unit.set_back->bytecode_of_seconds);
  tar.content(head);
  give_content(tar, feed, unit.entry->size - head.size());
}

void LayerTarWriter::give_content(codec::TarWriter& tar, ContentFeed& feed, std::uint64_t length) {
  feed.take(length, work_.progress, [&](ByteView part) { tar.content(part); });
}

void LayerTarWriter::give_zeros(codec::TarWriter& tar, std::uint64_t length) {
  varve::give_zeros(length, [&](ByteView zeros) {
    work_.cancel.throw_if_cancelled();
    tar.content(zeros);
  });
}

void LayerTarWriter::check_content(const std::string& name, const Digest& content) {
  if (expected_.empty()) throw std::logic_error("the writer saw a file that the tar does not have");
  const auto expected = expected_.front();
  expected_.pop_front();
  if (expected.path != name) throw std::logic_error("the writer sees files in another order");
  if (expected.content != content)
    fail<CorruptData>("{}: its content is {}, the index says {}", name, content.to_string(),
                      expected.content.to_string());
}

void LayerTarWriter::collect(LayerWriter& writer, ByteView bytes) {
  if (bytes.size() < kFeedBytes && waiting_.size() + bytes.size() < kFeedBytes) return append(waiting_, bytes);
  flush(writer);
  writer.feed(bytes);
}
void LayerTarWriter::flush(LayerWriter& writer) {
  writer.feed(waiting_);
  waiting_.clear();
}

}  // namespace varve::indexer
