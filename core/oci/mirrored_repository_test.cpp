#include "core/oci/mirrored_repository.h"

#include <thread>

#include "core/oci/copy_blob.h"
#include "testing/registry_fixture.h"

namespace varve::oci {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// A registry and a mirror of it, as containerd's file has them.
class MirrorTest : public RegistryFixture {
 protected:
  MirrorTest() {
    options_.mirrors.hosts_dirs = {dir_ / "certs.d"};
    options_.mirrors.registries_conf = dir_ / "registries.conf";
    options_.stall_timeout_ms = 300;
    options_.first_answer_ms = 20'000;  // a living mirror may be slow on a loaded machine
    write_file_atomically(dir_ / "registries.conf", {});
    mirror_.add_blob("team/app", content_);
    say("capabilities = [\"pull\"]\n");
  }
  std::filesystem::path hosts_file() {
    auto name = registry_.host();
    name.replace(name.find(':'), 1, "_");
    return dir_ / "certs.d" / (name + "_") / "hosts.toml";
  }
  void say(const std::string& keys) {
    std::filesystem::create_directories(hosts_file().parent_path());
    write_file_atomically(hosts_file(), as_bytes("[host.\"http://" + mirror_.host() + "\"]\n" + keys));
  }
  std::unique_ptr<MirroredRepository> open(const std::string& name = "team/app") {
    return std::make_unique<MirroredRepository>(Reference::parse(registry_.reference(name)), options_, clock_);
  }
  void expect_right(Repository& repository, ByteRange range) {
    EXPECT_TRUE(read(repository, blob_, range) == cut(content_, range)) << range.offset;
  }
  void mirror_breaks(Break how, std::uint64_t after) {
    mirror_.set([&](Switches& s) {
      s.breaks = how;
      s.break_after = after;
      s.break_count = 1;
    });
  }
  template <typename Holds>
  static void wait_until(Holds&& holds) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << "it never came to be";
        return;
      }
      std::this_thread::yield();
    }
  }

  const Bytes content_ = pattern(3'000'000);
  const Descriptor blob_ = add_blob(content_);
  const ByteRange early_{.offset = 100, .length = 5'000};
  const ByteRange late_{.offset = 2'000'000, .length = 70'000};
  test::FakeRegistry mirror_;
};

TEST_F(MirrorTest, IsAskedFirstAndToldWhichRegistryIsMeant) {
  const auto repository = open();
  expect_right(*repository, late_);
  EXPECT_EQ(registry_.count(Kind::kAny), 0u);
  ASSERT_EQ(mirror_.count(Kind::kBlob), 1u);
  const auto request = mirror_.records()[0].request;
  EXPECT_EQ(request.query.at("ns"), registry_.host());
  const auto sources = repository->sources();
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].host, mirror_.host());
  EXPECT_TRUE(sources[0].mirror);
  EXPECT_EQ(sources[0].bytes, late_.length);
  EXPECT_EQ(sources[1].bytes, 0u);
  EXPECT_EQ(repository->mirror_bytes(blob_.digest), late_.length);
}

TEST_F(MirrorTest, ThatDiesBetweenTwoReadsCostsOneRequestAndNoWait) {
  const auto repository = open();
  expect_right(*repository, early_);
  mirror_.fail_next(503, -1);
  mirror_.forget_records();
  for (int i = 0; i < 5; ++i) expect_right(*repository, late_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  EXPECT_EQ(registry_.count(Kind::kBlob), 5u);
  EXPECT_THAT(clock_.sleeps(), IsEmpty());
  EXPECT_EQ(repository->sources()[0].state, "resting");
  EXPECT_THAT(repository->sources()[0].last_error, HasSubstr("503"));
}

TEST_F(MirrorTest, ThatIsAwayIsNoError) {
  mirror_.stop();
  const auto repository = open();
  expect_right(*repository, early_);
  expect_right(*repository, {.offset = 0, .length = blob_.size});
}

TEST_F(MirrorTest, ThatDiesInABodyIsFollowedAtTheNextByte) {
  mirror_breaks(Break::kClose, 20'000);
  expect_right(*open(), late_);
  ASSERT_EQ(registry_.count(Kind::kBlob), 1u);
  EXPECT_EQ(registry_.records()[0].request.header("range"), "bytes=2020000-2069999");
  EXPECT_THAT(clock_.sleeps(), IsEmpty());
}

TEST_F(MirrorTest, ThatDiesInAWholeBlobIsFollowedAndTheDigestChecked) {
  mirror_breaks(Break::kClose, 1'000'000);
  const auto large = pattern(9'000'000);
  auto blob = add_blob(large);
  mirror_.add_blob("team/app", large);
  EXPECT_TRUE(read(*open(), blob, {.offset = 0, .length = blob.size}) == large);
  EXPECT_EQ(registry_.records()[0].request.header("range"), "bytes=1000000-8999999");
}

// It holds its answers from now on; in the end they must go, or it does not.
class Held {
 public:
  explicit Held(test::FakeRegistry& registry) : registry_(registry) { registry_.hold_blobs(); }
  ~Held() { registry_.release_blobs(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  test::FakeRegistry& registry_;
};

TEST_F(MirrorTest, ThatNeverAnsweredIsLeftSoonAndRests) {
  options_.first_answer_ms = 50;
  options_.stall_timeout_ms = 20'000;
  const auto repository = open();
  {
    const Held silent(mirror_);
    expect_right(*repository, late_);
    EXPECT_EQ(repository->sources()[0].state, "resting");
    EXPECT_THAT(repository->sources()[0].last_error, HasSubstr("within 50 ms"));
    for (int i = 0; i < 3; ++i) expect_right(*repository, early_);
    EXPECT_EQ(repository->sources()[0].failures, 1u) << "it was not asked while it rests";
    EXPECT_EQ(registry_.count(Kind::kBlob), 4u);
    EXPECT_THAT(clock_.sleeps(), IsEmpty());
    clock_.advance(std::chrono::seconds(2));
    expect_right(*repository, late_);  // begins the probe, which waits
  }
  wait_until([&] { return repository->sources()[0].state == "good"; });
  registry_.forget_records();
  expect_right(*repository, late_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
}

TEST_F(MirrorTest, ThatIsSlowIsWaitedForWhereNobodyElseGives) {
  options_.first_answer_ms = 50;
  options_.stall_timeout_ms = 20'000;
  options_.max_attempts = 1;
  registry_.fail_next(503, -1);
  const auto repository = open();
  {
    Held slow(mirror_);
    const std::jthread release([&] {
      wait_until([&] { return registry_.count(Kind::kBlob) > 0; });  // so it was left, and the next one asked
      mirror_.release_blobs();
    });
    expect_right(*repository, late_);
  }
  EXPECT_EQ(registry_.count(Kind::kBlob), 1u);
  const auto mirror = repository->sources()[0];
  EXPECT_EQ(mirror.bytes, late_.length);
  EXPECT_EQ(mirror.failures, 1u);
  EXPECT_EQ(mirror.state, "good");
  EXPECT_THAT(clock_.sleeps(), IsEmpty());
}

TEST_F(MirrorTest, ThatAnsweredAnyOfItsHostsRepositoriesIsWaitedForAsLongAsEver) {
  registry_.add_blob("team/other", content_);
  mirror_.add_blob("team/other", content_);
  mirror_.set([](Switches& s) { s.auth = Auth::kBasic; });  // 401 is an answer
  options_.known_hosts = std::make_shared<KnownHosts>();
  options_.stall_timeout_ms = 20'000;
  expect_right(*open(), late_);
  mirror_.set([](Switches& s) { s.auth = Auth::kNone; });
  registry_.forget_records();
  options_.first_answer_ms = 50;
  const auto other = open("team/other");
  {
    Held slow(mirror_);
    const std::jthread release([&] {
      mirror_.wait_for_held(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // longer than one that never answered has
      mirror_.release_blobs();
    });
    expect_right(*other, late_);
  }
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
  EXPECT_EQ(other->sources()[0].failures, 0u);
}

TEST_F(MirrorTest, ThatNeverAnsweredDoesNotDelayThatATagIsNotThere) {
  options_.first_answer_ms = 50;
  test::FakeHttpServer silent(
      [](const auto&) { return test::FakeHttpResponse{.breaks = Break::kStall, .break_after = 0}; });
  options_.mirrors.rules = {
      {.prefix = registry_.host(), .locations = {"http://" + silent.host()}, .resolve = true, .place = "test"}};
  const auto repository = open();
  EXPECT_THROW(repository->manifest("none"), NotFound);
  EXPECT_EQ(repository->sources()[0].failures, 1u) << "it is not asked once more, with patience";
}

TEST_F(MirrorTest, ThatHangsInABodyIsLeft) {
  mirror_breaks(Break::kStall, 1);
  const auto repository = open();
  expect_right(*repository, late_);
  EXPECT_EQ(repository->sources()[0].state, "resting");
}

TEST_F(MirrorTest, WithAnotherBlobsBytesIsNotBelievedAndAskedLastForIt) {
  mirror_.set([&](Switches& s) { s.flipped_byte[blob_.digest] = 2'000'010; });
  const auto repository = open();
  expect_right(*repository, {.offset = 0, .length = blob_.size});
  EXPECT_EQ(repository->sources()[0].wrong, 1u);
  mirror_.forget_records();
  expect_right(*repository, late_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 0u);
}

// More than is kept to be looked at before it is handed on: the copy has the wrong bytes when they are found out.
TEST_F(MirrorTest, WithWrongBytesOfALargeBlobSpoilsNoCopyOfIt) {
  const auto large = pattern(9'000'000);
  const auto blob = add_blob(large);
  mirror_.add_blob("team/app", large);
  mirror_.set([&](Switches& s) { s.flipped_byte[blob.digest] = 8'000'000; });
  const auto repository = open();
  const auto copy = create_layout(dir_ / "copy");
  copy_blob(*repository, *copy, blob);
  EXPECT_TRUE(read_whole_blob(*copy, blob, large.size()) == large);
  EXPECT_EQ(repository->sources()[0].wrong, 1u);

  registry_.set([&](Switches& s) { s.flipped_byte[blob.digest] = 7'000'000; });
  const auto none = create_layout(dir_ / "none");
  EXPECT_THROW(copy_blob(*open(), *none, blob), CorruptData) << "where all of them lie";
  EXPECT_FALSE(none->has_blob(blob));
}

TEST_F(MirrorTest, IsBlamedForARangeThatWasFoundToBeWrong) {
  mirror_.set([&](Switches& s) { s.flipped_byte[blob_.digest] = 2'000'010; });
  const auto repository = open();
  EXPECT_FALSE(read(*repository, blob_, late_) == cut(content_, late_));
  repository->note_wrong_bytes(blob_, {.offset = 2'000'000, .length = 100}, "span 3: wrong digest");
  expect_right(*repository, late_);
  EXPECT_EQ(repository->sources()[0].wrong, 1u);
  EXPECT_EQ(repository->sources()[1].wrong, 0u);
  EXPECT_THAT(repository->sources()[0].last_error, HasSubstr("span 3"));
}

TEST_F(MirrorTest, WhoWatchesIsToldWhichHostFailedAndHow) {
  struct Watch final : SourceWatch {
    void failed(const std::string& host, Failure failure) noexcept override { told.emplace_back(host, failure); }
    std::vector<std::pair<std::string, Failure>> told;
  };
  const auto watch = std::make_shared<Watch>();
  options_.watch = watch;
  const auto repository = open();
  expect_right(*repository, early_);
  EXPECT_THAT(watch->told, IsEmpty());
  mirror_.fail_next(503);
  expect_right(*repository, late_);
  const auto other = open();
  mirror_.fail_next(403);
  expect_right(*other, late_);
  const auto third = open();
  expect_right(*third, early_);
  third->note_wrong_bytes(blob_, early_, "a span's digest");
  using Failure = SourceWatch::Failure;
  EXPECT_THAT(watch->told, testing::ElementsAre(std::pair(mirror_.host(), Failure::kTemporary),
                                                std::pair(mirror_.host(), Failure::kRefused),
                                                std::pair(mirror_.host(), Failure::kWrongBytes)));
}

TEST_F(MirrorTest, WhoWatchesIsToldOfARegistryAlone) {
  struct Watch final : SourceWatch {
    void failed(const std::string& host, Failure failure) noexcept override { told.emplace_back(host, failure); }
    std::vector<std::pair<std::string, Failure>> told;
  };
  const auto watch = std::make_shared<Watch>();
  options_.watch = watch;
  options_.mirrors.off = true;
  options_.max_attempts = 1;
  const auto repository = open();
  const auto fails = [&](int status, auto&& ask) {
    registry_.fail_next(status);
    EXPECT_THROW(ask(), Error);
  };
  EXPECT_THROW(repository->manifest("none"), NotFound);
  EXPECT_THROW(repository->read_blob(blob_, early_, [](ByteView) { throw Unsupported("the sink's"); }), Unsupported);
  EXPECT_THAT(watch->told, IsEmpty());
  fails(503, [&] { repository->manifest("v1"); });
  fails(403, [&] { repository->manifest("v1"); });
  fails(503, [&] { read(*repository, blob_, early_); });
  using Failure = SourceWatch::Failure;
  EXPECT_THAT(watch->told, testing::ElementsAre(std::pair(registry_.host(), Failure::kTemporary),
                                                std::pair(registry_.host(), Failure::kRefused),
                                                std::pair(registry_.host(), Failure::kTemporary)));
}

TEST_F(MirrorTest, ThatLacksABlobIsNotAskedAgainForItButForOthers) {
  const auto other = add_blob(as_bytes("upstream alone"));
  const auto repository = open();
  for (int i = 0; i < 3; ++i) read(*repository, other, {.offset = 0, .length = 3});
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 2u);
  EXPECT_EQ(repository->sources()[0].state, "good");
  clock_.advance(std::chrono::minutes(11));
  read(*repository, other, {.offset = 0, .length = 3});
  EXPECT_EQ(mirror_.count(Kind::kBlob), 3u);
}

TEST_F(MirrorTest, ThatSendsAllForARangeIsLeftAndFilledMeanwhile) {
  mirror_.set([](Switches& s) { s.ignore_ranges = 1; });
  const auto repository = open();
  expect_right(*repository, late_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 1u);
  wait_until([&] { return mirror_.sent_bytes(Kind::kBlob) >= 2 * blob_.size; });  // the answer, and the filling
  wait_until([&] {
    expect_right(*repository, early_);
    return repository->sources()[0].bytes == early_.length;
  });
  EXPECT_EQ(repository->sources()[0].state, "good");
}

TEST_F(MirrorTest, ThatAlwaysSendsAllIsBetterThanNothing) {
  mirror_.set([](Switches& s) { s.ignore_ranges = -1; });
  registry_.stop();
  expect_right(*open(), late_);
}

TEST_F(MirrorTest, WithAnotherRangeThanAskedForIsNotBelieved) {
  mirror_.set([](Switches& s) { s.wrong_content_range = -1; });
  const auto repository = open();
  expect_right(*repository, late_);
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  EXPECT_EQ(repository->sources()[0].wrong, 1u);
}

TEST_F(MirrorTest, CarriesOnAloneWhenTheRegistryIsGone) {
  const auto json = as_bytes(R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"})");
  const auto digest = mirror_.add_manifest("team/app", json, "application/vnd.oci.image.manifest.v1+json", "v1");
  registry_.stop();
  const auto repository = open();
  expect_right(*repository, late_);
  EXPECT_EQ(repository->manifest(digest.to_string()).descriptor.digest, digest);
  EXPECT_THROW(repository->manifest("v1"), TemporaryError);  // it may not say what tags name
  say("");
  EXPECT_EQ(open()->manifest("v1").descriptor.digest, digest);
}

TEST_F(MirrorTest, BothGoneIsAnErrorThatNamesBoth) {
  registry_.stop();
  mirror_.fail_next(503, -1);
  const auto repository = open();
  const auto message = test::refusal_of<std::exception>([&] { read(*repository, blob_, early_); });
  EXPECT_THAT(message, AllOf(HasSubstr(registry_.host()), HasSubstr(mirror_.host()), HasSubstr("503"),
                             HasSubstr(blob_.digest.to_string())));
  EXPECT_THROW(read(*repository, blob_, early_), TemporaryError);
  EXPECT_THAT(clock_.sleeps(), testing::Not(IsEmpty()));
}

TEST_F(MirrorTest, ThatReturnsIsFoundByAProbeAndComesFirstAgain) {
  mirror_.fail_next(503, 1);
  const auto repository = open();
  expect_right(*repository, late_);
  clock_.advance(std::chrono::seconds(2));
  expect_right(*repository, late_);  // still from the registry; it begins the probe
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
  wait_until([&] { return repository->sources()[0].state == "good"; });
  registry_.forget_records();
  expect_right(*repository, late_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
}

TEST_F(MirrorTest, ThatStaysAwayRestsLongerEachTime) {
  mirror_.fail_next(503, -1);
  const auto repository = open();
  expect_right(*repository, late_);
  std::size_t probes = 1;
  int last = 0;
  const auto asked = [&] { return repository->sources()[0].failures; };
  for (int second = 0; second < 300; ++second) {
    clock_.advance(std::chrono::seconds(1));
    expect_right(*repository, early_);
    // The longest rest is over: a probe is under way, and time must not go on without it.
    if (second - last > 60) wait_until([&] { return asked() > probes; });
    if (asked() == probes) continue;
    probes = asked();
    last = second;
  }
  // About 300 s: 1 + 2 + 4 + ... + 60, then one a minute at least each 30 s.
  EXPECT_GE(probes, 3u);
  EXPECT_LE(probes, 20u);
}

TEST_F(MirrorTest, ThatIsAwayIsKnownToTheOtherRepositoriesOfItsHost) {
  registry_.add_blob("team/other", content_);
  options_.known_hosts = std::make_shared<KnownHosts>();
  const auto first = open(), second = open("team/other");
  mirror_.stop();
  expect_right(*first, late_);
  EXPECT_EQ(first->sources()[0].failures, 1u);
  EXPECT_EQ(second->sources()[0].state, "resting");
  EXPECT_EQ(second->sources()[1].state, "good");
  expect_right(*second, late_);
  EXPECT_EQ(second->sources()[0].failures, 0u) << "it was not asked again";

  options_.known_hosts = nullptr;
  const auto alone = open("team/other");
  expect_right(*alone, late_);
  EXPECT_EQ(alone->sources()[0].failures, 1u);
}

TEST_F(MirrorTest, ThatAnswersWithAnErrorRestsForThatRepositoryAlone) {
  registry_.add_blob("team/other", content_);
  mirror_.add_blob("team/other", content_);
  options_.known_hosts = std::make_shared<KnownHosts>();
  const auto first = open(), second = open("team/other");
  mirror_.fail_next(503);
  expect_right(*first, late_);
  EXPECT_EQ(first->sources()[0].state, "resting");
  registry_.forget_records();
  expect_right(*second, late_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
}

TEST_F(MirrorTest, ThatAsksForPatienceGetsIt) {
  mirror_.fail_next(429, 1, Kind::kAny, "40");
  const auto repository = open();
  expect_right(*repository, late_);
  clock_.advance(std::chrono::seconds(39));
  expect_right(*repository, late_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  clock_.advance(std::chrono::seconds(1));
  expect_right(*repository, late_);
  wait_until([&] { return repository->sources()[0].state == "good"; });
}

TEST_F(MirrorTest, FilesThatChangeWhileItIsOpenCount) {
  std::filesystem::remove(hosts_file());
  const auto repository = open();
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 0u);
  say("capabilities = [\"pull\"]\n");
  clock_.advance(std::chrono::seconds(2));
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  write_file_atomically(hosts_file(), as_bytes("no TOML"));
  clock_.advance(std::chrono::seconds(2));
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 2u);
  EXPECT_THROW(open(), UsageError);
  std::filesystem::remove(hosts_file());
  clock_.advance(std::chrono::seconds(2));
  expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 2u);
}

TEST_F(MirrorTest, GetsNeitherTheRegistrysCredentialsNorStorageItsHeaders) {
  log_in("dXNlcjpwYXNzOndvcmQ=");  // user:pass:word, of the registry
  registry_.set([](Switches& s) { s.auth = Auth::kBasic; });
  mirror_.set([](Switches& s) { s.redirect_blobs = true; });
  say("capabilities = [\"pull\"]\nheader = { x-secret = \"of the mirror\" }\n");
  const auto other = add_blob(as_bytes("upstream alone"));
  const auto repository = open();
  expect_right(*repository, early_);
  read(*repository, other, {.offset = 0, .length = 3});
  bool stored = false;
  for (const auto& record : mirror_.records()) {
    EXPECT_EQ(record.request.header("authorization"), "");
    const bool at_storage = record.kind == Kind::kStorage;
    stored = stored || at_storage;
    EXPECT_EQ(record.request.header("x-secret"), at_storage ? "" : "of the mirror");
    EXPECT_EQ(record.request.query.contains("ns"), !at_storage);
  }
  EXPECT_TRUE(stored);
  ASSERT_GT(registry_.count(Kind::kBlob), 0u);
  for (const auto& record : registry_.records()) {
    EXPECT_EQ(record.request.header("x-secret"), "");
    EXPECT_FALSE(record.request.query.contains("ns"));
  }
}

TEST_F(MirrorTest, ThatRefusesUsRests) {
  mirror_.set([](Switches& s) { s.auth = Auth::kBasic; });
  const auto repository = open();
  for (int i = 0; i < 3; ++i) expect_right(*repository, early_);
  EXPECT_EQ(mirror_.count(Kind::kBlob), 1u);
  EXPECT_EQ(repository->sources()[0].state, "resting");
  EXPECT_THAT(clock_.sleeps(), IsEmpty());
}

TEST_F(MirrorTest, IsNotAskedForTagsAndReferrersAndGetsNothingPut) {
  const std::string type = "application/vnd.oci.image.manifest.v1+json";
  const auto json = as_bytes(R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"})");
  registry_.add_manifest("team/app", json, type, "v1");
  const auto repository = open();
  repository->manifest("v1");
  repository->referrers(digest_of("x"), "some/type");
  put_bytes(*repository, as_bytes("new"), "text/plain");
  EXPECT_EQ(mirror_.count(Kind::kAny), 0u);
  EXPECT_TRUE(registry_.blob("team/app", digest_of("new")));
}

TEST_F(MirrorTest, SinksErrorsAreNotTheSources) {
  const auto repository = open();
  struct Enough {};
  EXPECT_THROW(repository->read_blob(blob_, late_, [](ByteView) { throw Enough(); }), Enough);
  EXPECT_THROW(repository->read_blob(blob_, late_, [](ByteView) { throw CorruptData("decoder"); }), CorruptData);
  EXPECT_EQ(repository->sources()[0].failures, 0u);
  EXPECT_EQ(registry_.count(Kind::kBlob), 0u);
}

}  // namespace
}  // namespace varve::oci
