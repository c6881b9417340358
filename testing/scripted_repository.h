#pragma once
// A repository in memory that can be told to be slow, to fail and to lie: for tests of what fetches from it.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/oci/repository.h"

namespace varve::test {

// Safe to use from any thread.
class ScriptedRepository final : public oci::Repository {
 public:
  explicit ScriptedRepository(std::string name = "memory") : name_(std::move(name)) {}
  ~ScriptedRepository() override { open_gate(); }

  // Adds a blob and returns its descriptor.
  oci::Descriptor serve(Bytes content);
  // The blob is gone.
  void remove(const Digest& digest);
  // One byte of a blob is served wrong from now on, until mend().
  void flip(const Digest& digest, std::uint64_t offset);
  void mend();

  enum class Failure { kTemporary, kCorrupt, kDenied, kShort };
  // The next `count` reads fail after `after_bytes` bytes. kShort: read_blob returns as if all were given.
  void fail_next(int count, Failure failure, std::uint64_t after_bytes = 0);

  // Reads wait before their first byte until the gate is opened. With `digest` only those of that blob.
  void close_gate(std::optional<Digest> digest = std::nullopt);
  void open_gate();
  // Lets so many reads through that wait at the gate, oldest first.
  void let_through(int count);
  // Waits until so many reads stand at the gate at once.
  void wait_until_gated(std::size_t count);
  // Waits until so many reads have come in all.
  void wait_for_reads(std::size_t count);

  struct Read {
    Digest digest;
    ByteRange range;
    bool operator==(const Read&) const = default;
  };
  // All reads so far, in the order they came.
  std::vector<Read> reads() const;
  std::size_t reads_of(const Digest& digest) const;

  std::string name() const override { return name_; }
  bool is_local() const override { return name_.starts_with("oci:"); }
  oci::Document manifest(std::string_view selector) override;
  void read_blob(const oci::Descriptor& blob, ByteRange compressed_range, const oci::ByteSink& sink) override;
  bool has_blob(const oci::Descriptor& blob) override;
  void put_blob(const oci::Descriptor& blob, const oci::ByteSource& content) override;
  oci::Descriptor put_manifest(ByteView json, std::string_view media_type, std::string_view tag) override;
  std::vector<oci::Descriptor> referrers(const Digest& subject, std::string_view artifact_type) override;

 private:
  struct Plan {
    Bytes content;
    std::optional<Failure> failure;
    std::uint64_t bytes = 0;  // given before the failure
  };
  Plan plan_read(const oci::Descriptor& blob, ByteRange range);

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Digest, Bytes> blobs_;
  std::map<Digest, std::uint64_t> flipped_;
  std::vector<Read> reads_;
  int failures_left_ = 0;
  Failure failure_ = Failure::kTemporary;
  std::uint64_t failure_after_ = 0;
  bool gate_closed_ = false;
  std::optional<Digest> gated_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t passed_tickets_ = 0;
  std::size_t at_gate_ = 0;
};

}  // namespace varve::test
