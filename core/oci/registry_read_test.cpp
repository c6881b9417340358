#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/oci/internal/registry_endpoint.h"
#include "testing/registry_fixture.h"

namespace varve::oci {
namespace {

using test::refusal_of;
using testing::HasSubstr;
using testing::Not;

class RegistryReadTest : public RegistryFixture {
 protected:
  const Bytes content_ = pattern(3'000'000);
  const Descriptor blob_ = add_blob(content_);
  const ByteRange early_{.offset = 100, .length = 5'000};
  const ByteRange late_{.offset = 2'000'000, .length = 70'000};
};

TEST_F(RegistryReadTest, ReadsRangesAndWholeBlobsOverOneConnectionPool) {
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, late_), cut(content_, late_));
  EXPECT_EQ(read(*repository, blob_, {0, blob_.size}), content_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
  EXPECT_EQ(registry_.sent_bytes(Kind::kBlob), late_.length + blob_.size);
  EXPECT_EQ(registry_.records()[0].request.header("range"), "bytes=2000000-2069999");
  EXPECT_EQ(registry_.records()[0].request.header("accept-encoding"), "identity");
  EXPECT_EQ(registry_.records()[1].request.header("range"), "");
  EXPECT_TRUE(repository->has_blob(blob_));
  auto missing = blob_;
  missing.digest = digest_of("none");
  EXPECT_FALSE(repository->has_blob(missing));
  EXPECT_THROW(read(*repository, missing, early_), NotFound);
  EXPECT_THROW(read(*repository, blob_, {blob_.size, 1}), CorruptData);
}

TEST_F(RegistryReadTest, ALoopbackRegistryIsNotAskedWhetherItSpeaksTls) {
  options_.plain_http = false;
  EXPECT_EQ(read(*open(), blob_, early_), cut(content_, early_));
  EXPECT_EQ(registry_.records().size(), 1u);
}

// As who speaks TLS says to plain HTTP, too: it is asked, and what it said stands.
TEST_F(RegistryReadTest, ALoopbackRegistryThatRefusesAsIfItSpokeTlsIsStillAskedByHttp) {
  options_.plain_http = false;
  const auto repository = open();
  registry_.fail_next(400);
  EXPECT_THAT(refusal_of([&] { read(*repository, blob_, early_); }), HasSubstr("status 400"));
  EXPECT_EQ(read(*repository, blob_, early_), cut(content_, early_));
  registry_.fail_next(400);
  EXPECT_THAT(refusal_of([&] { read(*repository, blob_, early_); }), HasSubstr("status 400"));
  EXPECT_EQ(registry_.records().size(), 3u);
}

TEST_F(RegistryReadTest, ReadsThatAreExpectedFindConnections) {
  constexpr int kConnections = 4, kMostTurns = 50;
  std::vector<Descriptor> blobs;  // the first read of each is waited for by others of it
  for (int i = 0; i < kConnections; ++i) blobs.push_back(add_blob(as_bytes(std::to_string(i))));
  std::size_t made = 0;
  for (int turn = 0; turn < kMostTurns && made != kConnections; ++turn) {
    registry_.forget_records();
    const auto before = registry_.connections();
    const auto repository = open();
    repository->expect_reads();
    repository->expect_reads();
    while (registry_.records().size() < kConnections) std::this_thread::yield();
    for (const auto& record : registry_.records()) EXPECT_EQ(record.request.method + record.request.path, "HEAD/v2/");
    // Answered, but perhaps not known there yet: then a reader makes a further one.
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
    registry_.hold_blobs();
    std::vector<std::jthread> readers;
    for (const auto& blob : blobs) readers.emplace_back([&] { EXPECT_EQ(read(*repository, blob, {0, 1}).size(), 1u); });
    registry_.wait_for_held(kConnections);
    made = registry_.connections() - before;
    registry_.release_blobs();
  }
  EXPECT_EQ(made, kConnections);
}

TEST_F(RegistryReadTest, ConnectionsThatNobodyAnswersKeepNobody) {
  test::FakeHttpServer silent(
      [](const auto&) { return test::FakeHttpResponse{.breaks = Break::kStall, .break_after = 0}; });
  options_.connect_timeout_ms = options_.stall_timeout_ms = 3'600'000;
  RegistryRepository repository(Reference::parse(silent.host() + "/team/app:v1"), options_, clock_);
  repository.expect_reads();
  while (silent.connections() == 0) std::this_thread::yield();
  EXPECT_GE(silent.connections(), 1u);
}

TEST_F(RegistryReadTest, ServerThatIgnoresRangesCostsThePrefixOnly) {
  registry_.set([](Switches& s) { s.ignore_ranges = -1; });
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, {0, 1000}), cut(content_, {0, 1000}));
  EXPECT_EQ(read(*repository, blob_, late_), cut(content_, late_));
  EXPECT_FALSE(repository->serves_ranges());
  EXPECT_EQ(repository->stats().skipped_bytes, late_.offset);
  EXPECT_EQ(repository->stats().ranges_ignored, 2u);
}

TEST_F(RegistryReadTest, CacheThatIgnoresTheFirstRangeIsAskedAgain) {
  registry_.set([](Switches& s) { s.ignore_ranges = 1; });
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, late_), cut(content_, late_));
  EXPECT_TRUE(repository->serves_ranges());
  EXPECT_EQ(repository->stats().skipped_bytes, 0u);
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
}

TEST_F(RegistryReadTest, WrongContentRangeIsNeverServed) {
  registry_.set([](Switches& s) { s.wrong_content_range = 1; });
  EXPECT_EQ(read(*open(), blob_, early_), cut(content_, early_));
  registry_.set([](Switches& s) { s.wrong_content_range = -1; });
  EXPECT_THROW(read(*open(), blob_, early_), CorruptData);
  registry_.set([](Switches& s) { s.wrong_content_range = 0, s.wrong_total = 1; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("3000001 bytes"));
}

TEST_F(RegistryReadTest, RefusedRangeNamesBothSizes) {
  registry_.set([](Switches& s) { s.refuse_ranges = -1; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("3000000 bytes of it"));
  auto longer = blob_;
  longer.size += 10;
  registry_.set([](Switches& s) { s.refuse_ranges = 0; });
  EXPECT_THROW(read(*open(), longer, {blob_.size + 1, 5}), CorruptData);
  EXPECT_THROW(read(*open(), longer, {0, longer.size}), CorruptData);
}

TEST_F(RegistryReadTest, BrokenTransfersGoOnWhereTheyStopped) {
  options_.stall_timeout_ms = 1000;
  for (const auto how : {Break::kClose, Break::kReset, Break::kStall}) {
    registry_.forget_records();
    registry_.set([&](Switches& s) { s.breaks = how, s.break_after = 30'000, s.break_count = 1; });
    EXPECT_EQ(read(*open(), blob_, late_), cut(content_, late_));
    ASSERT_EQ(registry_.count(Kind::kBlob), 2u);
    // A reset may destroy what was on its way; what arrived is not asked for again.
    const auto second = registry_.records()[1].request.header("range");
    EXPECT_THAT(second, testing::EndsWith("-2069999"));
    if (how == Break::kClose) {
      EXPECT_EQ(second, "bytes=2030000-2069999");
    }
  }
}

TEST_F(RegistryReadTest, ATransferThatDripsIsBroken) {
  options_.stall_timeout_ms = 1000;
  registry_.set([&](Switches& s) { s.breaks = Break::kDrip, s.break_after = 30'000, s.break_count = 1; });
  EXPECT_EQ(read(*open(), blob_, late_).size(), late_.length);
  EXPECT_EQ(registry_.count(Kind::kBlob), 2u);
  registry_.set([&](Switches& s) { s.break_after = 1, s.break_count = -1; });
  options_.max_attempts = 2;
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, late_); }), HasSubstr("next to none"));
}

TEST_F(RegistryReadTest, WhoIsCancelledWaitsForNoRegistry) {
  CancelFlag cancel;
  cancel.cancel();
  options_.cancel = &cancel;
  options_.stall_timeout_ms = 3'600'000;
  EXPECT_EQ(read(*open(), blob_, late_), cut(content_, late_)) << "what is quick is done, to tidy up";
  registry_.set([](Switches& s) { s.breaks = Break::kDrip, s.break_after = 1, s.break_count = -1; });
  EXPECT_THROW(read(*open(), blob_, late_), Cancelled);
  registry_.set([](Switches& s) { s.breaks = Break::kClose; });
  EXPECT_THROW(read(*open(), blob_, late_), Cancelled);
  EXPECT_TRUE(clock_.sleeps().empty());
}

TEST_F(RegistryReadTest, WholeBlobThatBreaksIsResumedAndItsDigestChecked) {
  registry_.set([](Switches& s) { s.breaks = Break::kClose, s.break_after = 1'000'000, s.break_count = 2; });
  EXPECT_EQ(read(*open(), blob_, {0, blob_.size}), content_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 3u);
  EXPECT_EQ(registry_.sent_bytes(Kind::kBlob), blob_.size);
}

TEST_F(RegistryReadTest, GivesUpWhenNothingArrives) {
  registry_.set([](Switches& s) { s.breaks = Break::kClose, s.break_count = -1; });
  EXPECT_THROW(read(*open(), blob_, early_), TemporaryError);
  EXPECT_EQ(clock_.sleeps().size(), std::size_t(options_.max_attempts - 1));
}

TEST_F(RegistryReadTest, BodyWithoutLengthIsReadToItsEnd) {
  registry_.set([](Switches& s) { s.without_length = -1; });
  EXPECT_EQ(read(*open(), blob_, {0, blob_.size}), content_);
  EXPECT_EQ(read(*open(), blob_, late_), cut(content_, late_));
}

TEST_F(RegistryReadTest, RefusesContentThatWasEncodedOnTheWay) {
  registry_.set([](Switches& s) { s.content_encoding = -1; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("Content-Encoding"));
}

TEST_F(RegistryReadTest, FlippedByteInAWholeBlobIsFetchedAgainOnce) {
  registry_.set([&](Switches& s) { s.flipped_byte[blob_.digest] = 12'345, s.flip_count = 1; });
  EXPECT_EQ(read(*open(), blob_, {0, blob_.size}), content_);
  registry_.set([&](Switches& s) { s.flip_count = -1; });
  std::size_t handed_on = 0;
  EXPECT_THROW(open()->read_blob(blob_, {0, blob_.size}, [&](ByteView bytes) { handed_on += bytes.size(); }),
               CorruptData);
  EXPECT_EQ(handed_on, 0u);
}

TEST_F(RegistryReadTest, FlippedByteInALargeBlobThrowsAfterTheLastByte) {
  const auto large = pattern(9 * 1024 * 1024);
  const auto blob = add_blob(large);
  registry_.set([&](Switches& s) { s.flipped_byte[blob.digest] = 5; });
  EXPECT_THROW(read(*open(), blob, {0, blob.size}), CorruptData);
  registry_.set([&](Switches& s) { s.flipped_byte.clear(); });
  EXPECT_EQ(read(*open(), blob, {0, blob.size}), large);
}

TEST_F(RegistryReadTest, TriesAgainAfterTemporaryStatuses) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    registry_.fail_next(status, 2);
    EXPECT_EQ(read(*open(), blob_, early_), cut(content_, early_)) << status;
  }
  registry_.fail_next(503, -1);
  EXPECT_THROW(read(*open(), blob_, early_), TemporaryError);
  registry_.fail_next(405, 1);
  EXPECT_THROW(read(*open(), blob_, early_), Error);
}

TEST_F(RegistryReadTest, WaitsAsLongAsTheRegistryAsks) {
  registry_.fail_next(429, 1, Kind::kAny, "7");
  read(*open(), blob_, early_);
  ASSERT_EQ(clock_.sleeps().size(), 1u);
  EXPECT_GE(clock_.sleeps()[0], std::chrono::seconds(7));
  EXPECT_LE(clock_.sleeps()[0], std::chrono::milliseconds(7100));
  registry_.fail_next(429, 1, Kind::kAny, "21600");
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("21600 s"));
}

TEST_F(RegistryReadTest, FollowsRedirectsWithRangeAndWithoutAuthorization) {
  registry_.set([](Switches& s) { s.redirect_blobs = true, s.auth = Auth::kBasic; });
  log_in("dXNlcjpwYXNzOndvcmQ=");
  const auto repository = open();
  EXPECT_EQ(read(*repository, blob_, late_), cut(content_, late_));
  EXPECT_EQ(read(*repository, blob_, early_), cut(content_, early_));
  int at_storage = 0;
  for (const auto& record : registry_.records()) {
    if (record.kind != Kind::kStorage) continue;
    ++at_storage;
    EXPECT_EQ(record.request.header("authorization"), "");
    EXPECT_THAT(record.request.header("range"), HasSubstr("bytes="));
  }
  EXPECT_EQ(at_storage, 2);
  EXPECT_EQ(registry_.count(Kind::kBlob),
            2u);                             // the 401 and the redirect: the second range goes straight to the storage
  EXPECT_TRUE(repository->has_blob(blob_));  // HEAD would be refused there
}

TEST_F(RegistryReadTest, ResolvesExpiredUrlsAgain) {
  for (const int status : {400, 401, 403, 410}) {
    registry_.set([&](Switches& s) { s.redirect_blobs = true, s.redirect_uses = 1, s.expired_status = status; });
    const auto repository = open();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read(*repository, blob_, early_), cut(content_, early_)) << status;
    EXPECT_EQ(repository->stats().relocations, 2u) << status;
  }
  registry_.set([](Switches& s) { s.redirect_uses = 0; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }),
              testing::AllOf(HasSubstr("ExpiredRequest"), Not(HasSubstr("signature"))));
}

TEST_F(RegistryReadTest, ManyReadersOfAnExpiredUrlResolveItOnce) {
  registry_.set([](Switches& s) { s.redirect_blobs = true; });
  const auto repository = open();
  read(*repository, blob_, early_);
  EXPECT_EQ(registry_.count(Kind::kBlob), 1u);
  // Nobody is told where the bytes are before the first reader has seen that they are there.
  const auto other = pattern(100'000);
  const auto fresh = add_blob(other);
  registry_.forget_records();
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 8; ++i)
      readers.emplace_back([&] { EXPECT_EQ(read(*repository, fresh, early_), cut(other, early_)); });
  }
  EXPECT_EQ(registry_.count(Kind::kBlob), 1u);
  EXPECT_EQ(registry_.count(Kind::kStorage), 8u);
}

TEST_F(RegistryReadTest, WhereABlobLiesIsAskedOnceUnlessTheRegistryHasLastAnsweredItself) {
  constexpr int kReaders = 3;
  const auto repository = open();
  std::uint64_t size = 0;
  const auto one_more = [&] { return add_blob(pattern(++size)); };
  const auto read_at_once = [&](const Descriptor& blob, int asked) {
    registry_.forget_records();
    registry_.hold_blobs();
    std::vector<std::jthread> readers;
    for (int i = 0; i < kReaders; ++i)
      readers.emplace_back([&] { EXPECT_EQ(read(*repository, blob, {0, 1}).size(), 1u); });
    registry_.wait_for_held(asked);
    registry_.release_blobs();
    readers.clear();
    return registry_.count(Kind::kBlob);
  };
  read(*repository, one_more(), {0, 1});
  EXPECT_EQ(read_at_once(one_more(), kReaders), unsigned(kReaders));
  registry_.set([](Switches& s) { s.redirect_blobs = true; });
  read(*repository, one_more(), {0, 1});
  EXPECT_EQ(read_at_once(one_more(), 1), 1u);
  registry_.set([](Switches& s) { s.redirect_blobs = false; });
  read(*repository, one_more(), {0, 1});
  EXPECT_EQ(read_at_once(one_more(), kReaders), unsigned(kReaders));
}

TEST_F(RegistryReadTest, RedirectsEnd) {
  registry_.set([&](Switches& s) {
    s.redirect_to = "http://" + registry_.host() + "/v2/team/app/blobs/" + blob_.digest.to_string();
  });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("more than 8 redirects"));
  registry_.set([](Switches& s) { s.redirect_to = "ftp://storage.example/x"; });
  EXPECT_THAT(refusal_of<std::exception>([&] { read(*open(), blob_, early_); }), HasSubstr("invalid URL"));
}

TEST_F(RegistryReadTest, RedirectsNeverLeaveTls) {
  internal::RegistryEndpoint endpoint(internal::own_source(Reference::parse("registry.example/team/app"), true),
                                      options_, clock_);
  const auto from = *internal::Url::parse("https://registry.example/v2/team/app/blobs/x");
  internal::HttpResponse response;
  response.head.status = 307;
  response.head.headers.add_line("Location: http://storage.example/data?signature=secret");
  EXPECT_THAT(refusal_of<std::exception>([&] { endpoint.redirect_target(response, from, "blob"); }),
              testing::AllOf(HasSubstr("plain HTTP"), Not(HasSubstr("secret"))));
  response.head.headers.clear();
  response.head.headers.add_line("Location: //storage.example/data");
  EXPECT_EQ(endpoint.redirect_target(response, from, "blob").shown(), "https://storage.example/data");
}

TEST_F(RegistryReadTest, ProxyOfTheEnvironmentIsUsed) {
  std::mutex mutex;
  std::vector<std::string> paths;
  test::FakeHttpServer proxy([&](const test::FakeHttpRequest& request) {
    const std::lock_guard lock(mutex);
    paths.push_back(request.path);
    return test::FakeHttpResponse{.status = 404};
  });
  ::setenv("http_proxy", ("http://" + proxy.host()).c_str(), 1);
  RegistryRepository repository(Reference::parse("registry.example/team/app"), options_, clock_);
  EXPECT_THROW(repository.manifest("v1"), NotFound);
  ::unsetenv("http_proxy");
  EXPECT_THAT(paths, testing::ElementsAre("http://registry.example/v2/team/app/manifests/v1"));
}

TEST_F(RegistryReadTest, WhatTheSinkThrowsEndsTheTransfer) {
  EXPECT_THROW(open()->read_blob(blob_, late_, [](ByteView) { throw Cancelled("stop"); }), Cancelled);
  EXPECT_EQ(registry_.count(Kind::kBlob), 1u);
}

TEST_F(RegistryReadTest, RegistryThatGoesAwayIsATemporaryError) {
  const auto repository = open();
  RegistryOptions options = options_;
  const auto reference = [] {
    test::FakeRegistry gone;
    return Reference::parse(gone.reference("team/app"));
  }();
  RegistryRepository away(reference, options, clock_);
  EXPECT_THROW(away.manifest("latest"), TemporaryError);
}

TEST_F(RegistryReadTest, ReadsManifestsByTagAndDigestAndRemembersThem) {
  const std::string json = R"({"schemaVersion":2,"layers":[]})";
  const auto digest = registry_.add_manifest("team/app", as_bytes(json), std::string(kOciManifestType), "v1");
  const auto repository = open();
  EXPECT_EQ(repository->manifest("v1").descriptor.digest, digest);
  EXPECT_EQ(as_text(repository->manifest(digest.to_string()).bytes), json);
  EXPECT_EQ(repository->manifest("v1").descriptor.media_type, kOciManifestType);
  const auto records = registry_.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(records[0].request.header("accept"), HasSubstr("vnd.docker.distribution.manifest.list.v2+json"));
  EXPECT_EQ(records[1].request.method, "HEAD");
  EXPECT_THAT(refusal_of<std::exception>([&] { repository->manifest("v2"); }),
              testing::AllOf(HasSubstr("'v2'"), HasSubstr(registry_.host())));
  EXPECT_THROW(repository->manifest("v2"), NotFound);

  registry_.set([&](Switches& s) { s.flipped_byte[digest] = 3, s.flip_count = 1; });
  EXPECT_EQ(as_text(open()->manifest("v1").bytes), json);
  registry_.set([&](Switches& s) { s.flip_count = -1; });
  EXPECT_THROW(open()->manifest("v1"), CorruptData);
  EXPECT_THROW(open()->manifest(digest.to_string()), CorruptData);
}

TEST_F(RegistryReadTest, ErrorsCarryTheRegistrysWordsOrNone) {
  registry_.set([](Switches& s) {
    s.failure = {.status = 403, .count = 1, .body = "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no\\nway\"}]}"};
  });
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("v1"); }), HasSubstr("DENIED: no way"));
  registry_.set([](Switches& s) { s.failure = {.status = 403, .count = 1, .body = "<html>forbidden</html>"}; });
  EXPECT_THAT(refusal_of<std::exception>([&] { open()->manifest("v1"); }),
              testing::AllOf(HasSubstr("status 403"), Not(HasSubstr("html"))));
}

}  // namespace
}  // namespace varve::oci
