#include "fuse/control/control_protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

struct SocketPair {
  SocketPair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_errno("socketpair");
    near.reset(ends[0]);
    far.reset(ends[1]);
  }
  UniqueFd near, far;
};

TEST(LineSocket, SplitsWhatArrivesIntoLines) {
  SocketPair pair;
  LineSocket lines(std::move(pair.near), 100);
  ASSERT_EQ(::send(pair.far.get(), "one\ntwo\nthr", 11, 0), 11);
  EXPECT_EQ(lines.read_line(), "one");
  EXPECT_EQ(lines.read_line(), "two");
  EXPECT_EQ(lines.read_line(0), std::nullopt);
  EXPECT_TRUE(lines.timed_out());
  ASSERT_EQ(::send(pair.far.get(), "ee\n", 3, 0), 3);
  EXPECT_EQ(lines.read_line(), "three");
  pair.far.reset();
  EXPECT_EQ(lines.read_line(), std::nullopt);
  EXPECT_FALSE(lines.timed_out());
}

TEST(LineSocket, RefusesALineThatNeverEnds) {
  SocketPair pair;
  LineSocket lines(std::move(pair.near), 100);
  const std::string endless(300, 'x');
  ASSERT_EQ(::send(pair.far.get(), endless.data(), endless.size(), 0), 300);
  EXPECT_THROW(lines.read_line(), Unsupported);
}

TEST(LineSocket, CarriesLinesLargerThanTheSocketsBuffer) {
  SocketPair pair;
  LineSocket reader(std::move(pair.near), kMaxAnswerBytes);
  LineSocket writer(std::move(pair.far), kMaxAnswerBytes);
  const std::string large(3'000'000, 'y');
  std::jthread sender([&] { writer.write_line(large); });
  EXPECT_EQ(reader.read_line(), large);
}

// As it arrives at the other side.
JsonValue crossed(const json& message) { return JsonValue::parse(message.dump(), "answer"); }

template <typename E>
void expect_crosses(const E& error) {
  try {
    throw_from_json(crossed(error_to_json(error)));
    FAIL();
  } catch (const E& arrived) {
    EXPECT_STREQ(arrived.what(), error.what());
  }
}

TEST(ControlProtocol, ErrorsArriveWithTheirTypeAndText) {
  expect_crosses(UsageError("wrong"));
  expect_crosses(NotFound("absent"));
  expect_crosses(CorruptData("broken"));
  expect_crosses(Unsupported("too much"));
  expect_crosses(TemporaryError("later"));
  expect_crosses(Cancelled("stopped"));
  const std::system_error busy(EBUSY, std::generic_category(), "unmount /x");
  expect_crosses(busy);
  try {
    throw_from_json(crossed(error_to_json(busy)));
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EBUSY);
  }
}

TEST(ControlProtocol, FieldsOfAnotherTypeAreNamed) {
  json stats = ImageStats{};
  stats["errors"] = "many";
  try {
    read_message<ImageStats>(crossed(stats));
    FAIL();
  } catch (const CorruptData& error) {
    EXPECT_NE(std::string(error.what()).find("errors"), std::string::npos);
  }
  EXPECT_THROW(read_message<DaemonStatus>(crossed(json::array())), CorruptData);
  EXPECT_THROW(read_message<DaemonStatus>(crossed({{"mounts", {{{"image", "sha256:12"}}}}})), CorruptData);
}

// What `varve status` read from a daemon of version 0.1, before cold layers, profiles, proofs and keepers.
TEST(ControlProtocol, AnAnswerOfADaemonOfAnEarlierVersionIsRead) {
  const auto status = read_message<DaemonStatus>(
      JsonValue::parse(R"({"daemon": {"pid": 7, "version": "0.1.0", "uptime_seconds": 2.5, "root": "/r"},
          "mounts": [{"dir": "/m", "mode": "kernel", "session": true, "image": ")" +
                           digest_of("image").to_string() + R"(", "reference": "r.example/a:1",
          "image_stream_bytes": 100, "present_bytes": 60, "fetched_bytes": 30, "requests": 3, "decoded_bytes": 50,
          "fetching": 1, "errors": 2, "last_error": "read of x", "fuse_requests": {"READ": 5}}],
          "store": {"bytes": 10}})",
                       "answer"));
  EXPECT_EQ(status.daemon.version, "0.1.0");
  EXPECT_EQ(status.daemon.keeper, "none");
  EXPECT_EQ(status.store.bytes, 10u);
  EXPECT_EQ(status.store.max_bytes, 0u);
  ASSERT_EQ(status.mounts.size(), 1u);
  EXPECT_EQ(status.mounts[0].mode, MountMode::kKernel);
  EXPECT_EQ(status.mounts[0].stats.present_bytes, 60u);
  EXPECT_EQ(status.mounts[0].stats.cold_bytes, 0u);
  EXPECT_EQ(status.mounts[0].stats.layers, 0u);
  EXPECT_FALSE(status.mounts[0].stats.complete());
  const auto verified = read_message<VerifyResult>(crossed({{"checked_bytes", 5}, {"bad", json::array()}}));
  EXPECT_EQ(verified.checked_bytes, 5u);
  EXPECT_FALSE(verified.refuted());
}

TEST(ControlProtocol, FractionsThatAreNoSecondsAreRefused) {
  EXPECT_EQ(parse_control_line(R"({"seconds": 1.5})", "line")["seconds"].raw().get<double>(), 1.5);
  for (const auto* odd : {"18447440737099551615", "[1, {\"a\": -0.5}]", "2147483648.0", "1e300"})
    EXPECT_THROW(parse_control_line(odd, "line"), CorruptData) << odd;
}

TEST(ControlProtocol, ADocumentNestedTooDeepIsRefused) {
  EXPECT_THROW(parse_control_line(std::string(10'000, '[') + std::string(10'000, ']'), "request"), Unsupported);
  EXPECT_THROW(parse_control_line("{\"a\":", "request"), CorruptData);
}

TEST(ControlProtocol, StatusCrossesWhole) {
  DaemonStatus status{
      .daemon = {.pid = 7, .version = "1", .uptime_seconds = 2.5, .root = "/r", .keeper = "keeper", .keeper_pid = 8},
      .mounts = {},
      .idle = {{.dir = "/run/i", .mode = MountMode::kKernel, .image = digest_of("idle"), .reference = "r.example/i:1"}},
      .pulls = {{.image = digest_of("other"),
                 .reference = "r.example/a:1",
                 .cold = true,
                 .done_bytes = 1,
                 .total_bytes = 9,
                 .fetched_bytes = 2,
                 .seconds = 1.5,
                 .waiting_seconds = 8,
                 .waiting_for = "r.example/a",
                 .error = "away"}},
      .links = {{.host = "r.example", .answer_seconds = 0.02, .bytes_per_second = 25e6}},
      .store = {.bytes = 10, .max_bytes = 20}};
  MountStatus mount;
  mount.dir = "/m";
  mount.mode = MountMode::kKernel;
  mount.session = true;
  mount.stats.image = digest_of("image");
  mount.stats.requests = 3;
  mount.stats.last_error = "read of x";
  mount.stats.waiting_for = "r.example/a";
  mount.stats.waiting_seconds = 8;
  mount.stats.bytes_from["local"] = 4;
  mount.holders = {17};
  mount.fuse_requests = {{"READ", 5}};
  status.mounts.push_back(mount);
  const auto arrived = read_message<DaemonStatus>(crossed(status));
  EXPECT_EQ(arrived.daemon.pid, 7);
  ASSERT_EQ(arrived.idle.size(), 1u);
  EXPECT_EQ(arrived.idle[0].image, digest_of("idle"));
  EXPECT_EQ(arrived.idle[0].reference, "r.example/i:1");
  ASSERT_EQ(arrived.mounts.size(), 1u);
  EXPECT_EQ(arrived.mounts[0].mode, MountMode::kKernel);
  EXPECT_EQ(arrived.mounts[0].stats.image, digest_of("image"));
  EXPECT_EQ(arrived.mounts[0].stats.requests, 3u);
  EXPECT_EQ(arrived.mounts[0].fuse_requests.at("READ"), 5u);
  EXPECT_EQ(arrived.mounts[0].stats.waiting_for, "r.example/a");
  EXPECT_EQ(arrived.mounts[0].stats.waiting_seconds, 8);
  EXPECT_EQ(arrived.mounts[0].stats.bytes_from,
            (std::map<std::string, std::uint64_t>{{"local", 4}, {"mirror", 0}, {"pack", 0}, {"registry", 0}}));
  EXPECT_EQ(arrived.mounts[0].holders, std::vector<std::int64_t>{17});
  EXPECT_EQ(arrived.store.max_bytes, 20u);
  EXPECT_EQ(json(arrived.links), json(status.links));
  ASSERT_EQ(arrived.pulls.size(), 1u);
  EXPECT_EQ(json(arrived.pulls[0]), json(status.pulls[0]));
}

TEST(ControlProtocol, WhoWouldLoseFilesCrosses) {
  const StopResult result{.in_use = {{.dir = "/m",
                                      .image = digest_of("image"),
                                      .reference = "r.example/a:1",
                                      .session = true,
                                      .held_by = {"pod"},
                                      .processes = {{.pid = 7, .name = "python3"}}}}};
  EXPECT_EQ(json(read_message<StopResult>(crossed(result))), json(result));
  EXPECT_TRUE(read_message<StopResult>(crossed(json::object())).in_use.empty()) << "as an earlier daemon answers";
}

TEST(ControlProtocol, ImagesThatWereLookedUpAndTreesThatAreHeldCross) {
  const LookedUpImage image{.image = digest_of("image"),
                            .reference = "r.example/a@" + digest_of("image").to_string(),
                            .config_json = R"({"os":"linux"})",
                            .layers = {digest_of("base"), digest_of("app")}};
  EXPECT_EQ(json(read_message<LookedUpImage>(crossed(image))), json(image));
  const HeldTree tree{.name = "pod 1",
                      .image = digest_of("image"),
                      .layers = 2,
                      .dir = "/run/varve/images/x",
                      .mode = MountMode::kKernel,
                      .why = "a reason"};
  EXPECT_EQ(json(read_message<HeldTree>(crossed(tree))), json(tree));
  EXPECT_THROW(read_message<HeldTree>(crossed(json{{"mode", "loop"}})), UsageError);
}

TEST(ImageSpec, CarriesPathsThatMeanTheSameInTheDaemon) {
  oci::RegistryOptions registry;
  registry.authfile = "auth.json";
  const auto spec = ImageSpec::from_user("oci:image:latest", "linux/amd64", registry);
  EXPECT_EQ(spec.reference, "oci:" + (std::filesystem::current_path() / "image").string() + ":latest");
  EXPECT_TRUE(spec.registry.authfile.is_absolute());
  const auto arrived = read_image_spec(crossed(spec));
  EXPECT_EQ(arrived.reference, spec.reference);
  EXPECT_EQ(arrived.platform, "linux/amd64");
  EXPECT_EQ(arrived.registry.authfile, spec.registry.authfile);
}

TEST(MountModes, AreNamedAsTheCommandLineNamesThem) {
  for (const auto mode : {MountMode::kAuto, MountMode::kKernel, MountMode::kFuse})
    EXPECT_EQ(parse_mount_mode(to_string(mode)), mode);
  EXPECT_THROW(parse_mount_mode("loop"), UsageError);
}

TEST(ControlProtocol, RangesAndRecordingsArriveAsTheyWere) {
  const std::vector<LayerRanges> layers{{digest_of("a"), {{0, 5}, {1ull << 40, 7}}}, {digest_of("b"), {}}};
  const auto arrived = read_layer_ranges(crossed(layers));
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(arrived[0].layer, digest_of("a"));
  EXPECT_EQ(arrived[0].ranges, layers[0].ranges);
  EXPECT_TRUE(arrived[1].ranges.empty());
  const auto profile = to_bytes(as_bytes(std::string_view("\0\xff profile", 10)));
  EXPECT_EQ(crossed(recording_to_json(profile))["profile"].base64(), profile);
}

TEST(ControlProtocol, RangesThatCannotBeReadAreRefused) {
  const auto layer = digest_of("a").to_string();
  for (const auto& text : {R"(5)", R"([5])", R"([{"ranges": []}])", R"([{"layer": "x", "ranges": []}])"})
    EXPECT_THROW(read_layer_ranges(JsonValue::parse(text, "request")), CorruptData) << text;
  for (const auto& ranges : {json(5), json::array({1}), json::array({"a", "b"})})
    EXPECT_THROW(read_layer_ranges(crossed(json::array({{{"layer", layer}, {"ranges", ranges}}}))), CorruptData)
        << ranges;
}

}  // namespace
}  // namespace varve::fuse
