#include "analyzer/prune/gpu_code.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/device_code.h"
#include "testing/memory_source.h"

namespace varve::prune {
namespace {

using test::container;
using test::DeviceEntry;
using test::elf_file;
using test::joined;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kCode = 100'000;

Bytes code_for(std::initializer_list<DeviceEntry> entries) {
  std::vector<DeviceEntry> all(entries);
  for (auto& one : all) one.payload_bytes = kCode;
  return container(all);
}

GpuCodeFound found_in(const Bytes& file, const cuda::GpuArchitectures& gpus) {
  return cold_gpu_code(
      file.size(), [&](ByteRange range) { return to_bytes(ByteView(file).subspan(range.offset, range.length)); }, gpus);
}

std::vector<std::string> cold_targets(const GpuCodeFound& found) {
  std::vector<std::string> names;
  for (const auto& one : found.code)
    if (one.cold) names.push_back(one.target);
  return names;
}

TEST(GpuCode, OnlyMachineCodeThatNoGpuRunsIsCold) {
  const auto file = elf_file({{".nv_fatbin", code_for({{.architecture = 70},
                                                       {.architecture = 75},
                                                       {.architecture = 80},
                                                       {.architecture = 86},
                                                       {.architecture = 90},
                                                       {.architecture = 90, .flags = 0x100011},
                                                       {.architecture = 100, .flags = 0x200011},
                                                       {.kind = 1, .architecture = 70},
                                                       {.kind = 8, .architecture = 70},
                                                       {.kind = 99, .architecture = 70}})}});
  EXPECT_THAT(cold_targets(found_in(file, {80})),
              UnorderedElementsAre("sm_70", "sm_75", "sm_86", "sm_90", "sm_90a", "sm_100f"));
  EXPECT_THAT(cold_targets(found_in(file, {86})), UnorderedElementsAre("sm_70", "sm_75", "sm_90", "sm_90a", "sm_100f"));
  EXPECT_THAT(cold_targets(found_in(file, {75, 90})), UnorderedElementsAre("sm_80", "sm_86", "sm_100f"))
      << "code for 7.0 runs on 7.5";
  EXPECT_THAT(cold_targets(found_in(file, {103})),
              UnorderedElementsAre("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_90a"));
}

TEST(GpuCode, NeighboursAreOneRangeAndContainersOfNothingElseToo) {
  const auto mixed = code_for({{.architecture = 50}, {.architecture = 60}, {.architecture = 80}, {.architecture = 90}});
  const auto old = code_for({{.architecture = 50}, {.architecture = 60}});
  const auto file = joined({mixed, old, old, mixed});
  const auto found = found_in(file, {80});
  const auto entry = kCode + 64;
  const auto second = mixed.size() + old.size();
  // From the last entry of the first container over two whole ones into the fourth.
  EXPECT_THAT(found.cold, ElementsAre(ByteRange{16, 2 * entry},
                                      ByteRange{16 + 3 * entry, second + old.size() - 3 * entry + 2 * entry},
                                      ByteRange{second + old.size() + 16 + 3 * entry, entry}));
}

TEST(GpuCode, WhatLiesIsHot) {
  const std::vector<DeviceEntry> two{{.architecture = 50, .payload_bytes = kCode},
                                     {.architecture = 80, .payload_bytes = kCode}};
  EXPECT_THAT(found_in(container(two, 1 << 30), {80}).cold, ElementsAre(ByteRange{16, kCode + 64}));
  EXPECT_THAT(found_in(container(two, -100), {80}).cold, ElementsAre(ByteRange{16, kCode + 64}));
  auto huge = container(two);
  store_le<std::uint64_t>(huge.data() + 16 + 8, ~std::uint64_t(0) - 3);
  EXPECT_THAT(found_in(huge, {80}).cold, IsEmpty());
  auto short_header = container(two);
  store_le<std::uint32_t>(short_header.data() + 16 + 4, 0);
  EXPECT_THAT(found_in(short_header, {80}).cold, IsEmpty());
  auto other_magic = container(two);
  other_magic[0] = std::byte(0);
  EXPECT_THAT(found_in(elf_file({{".nv_fatbin", other_magic}}), {80}).cold, IsEmpty());
}

TEST(GpuCode, AContainerWithinAnEntryIsNoneOfItsOwn) {
  const auto inner = code_for({{.architecture = 50}});
  auto outer = container({{.architecture = 80, .payload_bytes = inner.size() + 64}});
  std::ranges::copy(inner, outer.begin() + 16 + 64 + 32);
  EXPECT_THAT(found_in(elf_file({{".nv_fatbin", outer}}), {80}).cold, IsEmpty());
}

TEST(GpuCode, BytesThatSomethingHotClaimsTooStayHot) {
  // Two sections over the same bytes, the second from the middle of the first one's cold entry on.
  auto cold = code_for({{.architecture = 50}});
  const auto hot = container({{.architecture = 80, .payload_bytes = 1000}});
  std::ranges::copy(hot, cold.begin() + 16 + 64 + 50'000 / 8 * 8);
  auto file = elf_file({{".nv_fatbin", cold}, {"__nv_relfatbin", Bytes(8)}, {".data", Bytes(cold.size())}});
  const auto table = load_le<std::uint64_t>(file.data() + offsetof(Elf64_Ehdr, e_shoff));
  const auto section = [&](std::size_t number) { return file.data() + table + number * sizeof(Elf64_Shdr); };
  const auto begin = load_le<std::uint64_t>(section(1) + offsetof(Elf64_Shdr, sh_offset));
  const auto inner = begin + 16 + 64 + 50'000 / 8 * 8;
  store_le<std::uint64_t>(section(2) + offsetof(Elf64_Shdr, sh_offset), inner);
  store_le<std::uint64_t>(section(2) + offsetof(Elf64_Shdr, sh_size), hot.size());
  const auto found = found_in(file, {80});
  EXPECT_THAT(found.cold, ElementsAre(ByteRange{begin + 16, inner + 16 - (begin + 16)},
                                      ByteRange{inner + hot.size(), begin + cold.size() - (inner + hot.size())}));
}

TEST(GpuCode, ThousandsOfEntriesAreAsFewRangesAsThereAreChanges) {
  std::vector<DeviceEntry> entries;
  for (int i = 0; i < 50'000; ++i) entries.push_back({.architecture = i < 25'000 ? 50u : 80u, .payload_bytes = 0});
  const auto found = found_in(container(entries), {80});
  EXPECT_THAT(found.cold, ElementsAre(ByteRange{16, 25'000 * 64}));
  EXPECT_THAT(found.code, SizeIs(2));
}

TEST(GpuCode, MoreArchitecturesThanThereCanBeAreRefused) {
  std::vector<DeviceEntry> entries;
  for (std::uint32_t i = 0; i < 1000; ++i) entries.push_back({.architecture = i, .payload_bytes = 0});
  EXPECT_THROW(found_in(container(entries), {80}), Unsupported);
}

TEST(GpuCode, GpusAreAskedForByNameOrAsSessionsReportedThem) {
  EXPECT_EQ(wanted_gpus({"sm_80", "sm_90a"}, {}).architectures, (cuda::GpuArchitectures{80, 90}));
  const auto seen = wanted_gpus({"sessions", "sm_75"}, {{"NVIDIA H100 80GB HBM3", 412}, {"NVIDIA L4", 1}});
  EXPECT_EQ(seen.architectures, (cuda::GpuArchitectures{75, 89, 90}));
  EXPECT_THAT(seen.remarks, ElementsAre("Code for sm_90 stays hot because 412 sessions reported NVIDIA H100 80GB HBM3",
                                        "Code for sm_89 stays hot because 1 session reported NVIDIA L4"));
  const auto refused = [](const std::vector<std::string>& asked, const std::map<std::string, std::uint64_t>& models) {
    try {
      wanted_gpus(asked, models);
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(refused({"sm_81"}, {}), AllOf(HasSubstr("\"sm_81\""), HasSubstr("sm_80, sm_86"), HasSubstr("sessions")));
  EXPECT_THAT(refused({"sessions"}, {}), HasSubstr("no session of the window reported a GPU"));
  EXPECT_THAT(refused({"sm_80", "sessions"}, {{"Weird \x1b[31m 9", 2}}),
              AllOf(HasSubstr("2 sessions reported \"Weird"), ::testing::Not(HasSubstr("\x1b"))));
  EXPECT_THAT(refused({}, {}), HasSubstr("at least one"));
}

class PlannedCode : public testing::Test {
 protected:
  // One layer that holds the files in order, spans of `span` bytes.
  void add(const std::string& path, const Bytes& content, bool device_code = true) {
    files_.add(path, as_text(content));
    auto& file = tree().entries.at(path);
    file.content_digest = digest_of(content);
    auto facts = std::make_shared<index::ElfFacts>();
    facts->machine = 62;
    facts->device_code = device_code;
    file.elf = facts;
    file.runs = {{.layer = 0, .run = {.file_offset = 0, .stream_offset = end_, .length = content.size()}}};
    end_ += content.size();
  }
  index::FlatTree& tree() { return const_cast<index::FlatTree&>(files_.tree()); }

  Plan planned(const cuda::GpuArchitectures& gpus) {
    tree().has_elf_facts = true;
    auto map = std::make_shared<index::LayerMap>();
    map->layer_digest = digest_of("layer");
    map->format = index::LayerFormat::kZstd;
    for (std::uint64_t at = 0; at < end_; at += kSpan) {
      auto& span = map->spans.emplace_back();
      span.stream_range = {.offset = at, .length = std::min(kSpan, end_ - at)};
      span.compressed_range = {.offset = map->spans.size() * 10, .length = 10};
    }
    map->stream_bytes = end_;
    packages::Inventory inventory;
    Plan plan;
    plan.image = digest_of("image");
    add_gpu_cold(plan, files_, {map}, inventory, {.architectures = gpus, .remarks = {"as sessions said"}},
                 CancelFlag());
    return plan;
  }

  static constexpr std::uint64_t kSpan = 10'000;
  test::MemorySource files_;
  std::uint64_t end_ = 0;
};

TEST_F(PlannedCode, RangesOfFilesWithDeviceCodeAndWhatIsSaved) {
  const auto library = elf_file({{".nv_fatbin", code_for({{.architecture = 50}, {.architecture = 80}})}});
  add("lib/libcublas.so.12", library);
  add("lib/libnvrtc.so.12", library);
  add("lib/libplain.so", library, false);
  add("lib/liball.so", elf_file({{".nv_fatbin", code_for({{.architecture = 80}})}}));
  const auto plan = planned({80});
  ASSERT_THAT(plan.gpu_cold, SizeIs(1)) << "compilers make code for GPUs of others, too";
  const auto& file = plan.gpu_cold.front();
  EXPECT_EQ(file.path, "lib/libcublas.so.12");
  EXPECT_EQ(file.content, digest_of(library));
  EXPECT_EQ(file.bytes, library.size());
  EXPECT_THAT(file.code,
              ElementsAre(GpuCodeShare{"sm_50", 1, kCode + 64, true}, GpuCodeShare{"sm_80", 1, kCode + 64, false}));
  EXPECT_EQ(file.cold_bytes(), kCode + 64);
  EXPECT_EQ(plan.gpu_cold_bytes, 90u) << "nine of the ten or eleven spans that it touches";
  EXPECT_EQ(plan.parameters.at("gpu-arch"), "sm_80");
  EXPECT_THAT(plan.unsure, ElementsAre("as sessions said"));
}

TEST_F(PlannedCode, WhatIsNotKnownIsSaid) {
  add("libx.so", elf_file({{".nv_fatbin", code_for({{.kind = 77, .architecture = 50}})}}));
  EXPECT_THAT(planned({80}).unsure, ElementsAre("as sessions said", HasSubstr("of a kind that is not known here")));
}

TEST_F(PlannedCode, AFileThatIsNotReadIsSaidAndStaysHot) {
  std::vector<DeviceEntry> entries;
  for (std::uint32_t i = 0; i < 1000; ++i) entries.push_back({.architecture = i, .payload_bytes = 0});
  add("libx.so", elf_file({{".nv_fatbin", container(entries)}}));
  const auto plan = planned({80});
  EXPECT_THAT(plan.gpu_cold, IsEmpty());
  EXPECT_THAT(plan.unsure, ElementsAre(HasSubstr("libx.so stays hot"), "as sessions said"));
}

TEST_F(PlannedCode, IsCarriedOutOnlyOnTheFilesThatWerePlanned) {
  add("libx.so", elf_file({{".nv_fatbin", code_for({{.architecture = 50}})}}));
  auto plan = planned({80});
  EXPECT_EQ(cold_parts(plan, tree()).at("libx.so"), plan.gpu_cold.front().ranges);
  auto other = plan;
  other.gpu_cold.front().content = digest_of("other");
  EXPECT_THROW(cold_parts(other, tree()), CorruptData);
  other = plan;
  ++other.gpu_cold.front().bytes;
  EXPECT_THROW(cold_parts(other, tree()), CorruptData);
  tree().entries.erase("libx.so");
  EXPECT_THROW(cold_parts(plan, tree()), CorruptData);
  plan.verdicts.push_back({.name = "x",
                           .version = "1",
                           .source = "pip",
                           .verdict = Verdict::kArchived,
                           .reasons = {{.kind = "unused", .by = "", .text = ""}},
                           .users = {},
                           .imports = {}});
  EXPECT_THAT(cold_parts(plan, tree()), IsEmpty()) << "it went with what owned it";
}

}  // namespace
}  // namespace varve::prune
