#include "fuse/daemon/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/daemon/descriptor_store.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/holder_watch.h"
#include "fuse/daemon/keeper_protocol.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using Kind = KeeperMessage::Kind;

TEST(KeeperMessages, CrossAsTheyAre) {
  const KeeperMessage message{.kind = Kind::kStore, .name = "varve-00000001-aa", .body = std::string("a\0b", 3)};
  EXPECT_EQ(decode_keeper_message(encode(message)), message);
  EXPECT_EQ(decode_keeper_message(encode(KeeperMessage{})), KeeperMessage{});
}

TEST(KeeperMessages, WhatIsNoneIsRefused) {
  const auto good = encode({.kind = Kind::kStore, .name = "name", .body = "body"});
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(decode_keeper_message(ByteView(good).first(length)), CorruptData) << length;
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_keeper_message(longer), CorruptData);
  auto unknown = good;
  unknown[5] = std::byte{200};
  EXPECT_THROW(decode_keeper_message(unknown), CorruptData);
  auto later = good;
  later[4] = std::byte{kKeeperVersion + 1};
  EXPECT_THROW(decode_keeper_message(later), Unsupported);
  EXPECT_THROW(encode({.kind = Kind::kStore, .name = std::string(kMaxKeptNameBytes + 1, 'n'), .body = ""}), UsageError);
  EXPECT_THROW(encode({.kind = Kind::kHello, .name = "", .body = std::string(kMaxKeeperMessageBytes, 'b')}),
               UsageError);
}

// A keeper in a process of its own, as it is used; each connection to it is a daemon.
class KeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_.sun_family = AF_UNIX;
    std::strcpy(address_.sun_path, (dir_ / "s").c_str());
    UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    keeper_ = ::fork();
    if (keeper_ == 0) {
      try {
        run_keeper({.listener = std::move(listener),
                    .log_file = dir_ / "log",
                    .max_deaths = 3,
                    .successor_patience = std::chrono::seconds(1)});
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
  }
  void TearDown() override {
    if (keeper_ <= 0) return;
    ::kill(keeper_, SIGKILL);
    ::waitpid(keeper_, nullptr, 0);
  }

  UniqueFd connect() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) socket.reset();
    return socket;
  }
  // The words that a keeper would start a daemon by: they append a line to a file.
  std::string words() const {
    std::string words;
    for (const auto& word :
         {std::string("/bin/sh"), std::string("-c"), "echo started >> " + (dir_ / "starts").string()})
      words += word + '\0';
    return words;
  }
  static KeeperMessage ask(const UniqueFd& socket, const KeeperMessage& message, int fd = -1) {
    send_message(socket.get(), message, fd);
    return receive_message(socket.get()).value().message;
  }
  UniqueFd hello() {
    auto socket = connect();
    EXPECT_EQ(ask(socket, {.kind = Kind::kHello, .name = "", .body = words()}).kind, Kind::kDone);
    return socket;
  }
  static std::map<std::string, UniqueFd> take(const UniqueFd& socket) {
    std::map<std::string, UniqueFd> taken;
    send_message(socket.get(), {.kind = Kind::kTake, .name = "", .body = ""});
    while (true) {
      auto delivery = receive_message(socket.get()).value();
      if (delivery.message.kind != Kind::kEntry) return taken;
      taken[delivery.message.name] = std::move(delivery.fd);
    }
  }
  int exit_status() {
    int status = -1;
    ::waitpid(std::exchange(keeper_, 0), &status, 0);
    return status;
  }
  std::size_t starts() const {
    const auto lines = read_file_if_there(dir_ / "starts");
    return lines ? static_cast<std::size_t>(std::count(lines->begin(), lines->end(), std::byte{'\n'})) : 0;
  }

  test::TempDir dir_;
  sockaddr_un address_{};
  pid_t keeper_ = 0;
};

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("make a pipe");
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  // Waits for the last holder of the writing end to close it, which is how these tests see that a descriptor is given
  // up.
  void wait_for_end() {
    char byte = 0;
    EXPECT_EQ(::read(read_end.get(), &byte, 1), 0);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

TEST_F(KeeperTest, GivesTheNextDaemonWhatTheDeadOneLeft) {
  Pipe pipe;
  {
    const auto first = hello();
    EXPECT_EQ(ask(first, {.kind = Kind::kStore, .name = "kept", .body = ""}, pipe.write_end.get()).kind, Kind::kDone);
    EXPECT_EQ(ask(first, {.kind = Kind::kStore, .name = "gone", .body = ""}, pipe.write_end.get()).kind, Kind::kDone);
    EXPECT_EQ(ask(first, {.kind = Kind::kRemove, .name = "gone", .body = ""}).kind, Kind::kDone);
    EXPECT_EQ(ask(first, {.kind = Kind::kRemove, .name = "never there", .body = ""}).kind, Kind::kDone);
    pipe.write_end.reset();
  }
  const auto second = hello();
  auto taken = take(second);
  ASSERT_EQ(taken.size(), 1u);
  ASSERT_TRUE(taken["kept"]);
  EXPECT_EQ(::write(taken["kept"].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe.read_end.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(take(second).size(), 1u) << "it stays kept";
}

TEST_F(KeeperTest, StartsADaemonAgainAndGivesUpAfterSomeDeaths) {
  Pipe pipe;
  {
    const auto daemon = hello();
    ask(daemon, {.kind = Kind::kStore, .name = "kept", .body = ""}, pipe.write_end.get());
    pipe.write_end.reset();
  }
  pipe.wait_for_end();  // each daemon that it starts ends at once, without a hello
  EXPECT_EQ(exit_status(), 0);
  EXPECT_EQ(starts(), 3u);
}

TEST_F(KeeperTest, AGoodbyeClosesEverythingAndStartsNothing) {
  Pipe pipe;
  const auto daemon = hello();
  ask(daemon, {.kind = Kind::kStore, .name = "kept", .body = ""}, pipe.write_end.get());
  pipe.write_end.reset();
  EXPECT_EQ(ask(daemon, {.kind = Kind::kGoodbye, .name = "", .body = ""}).kind, Kind::kDone);
  pipe.wait_for_end();
  EXPECT_EQ(exit_status(), 0);
  EXPECT_EQ(starts(), 0u);
}

TEST_F(KeeperTest, ADaemonThatHeldNothingIsNotMissed) {
  hello().reset();
  EXPECT_EQ(exit_status(), 0);
  EXPECT_EQ(starts(), 0u);
}

// Any command looks whether one listens, and may do so before the daemon that has started it comes.
TEST_F(KeeperTest, VisitorsDoNotEndItBeforeItsDaemonHasCome) {
  for (int i = 0; i < 5; ++i) {
    const auto visitor = connect();
    EXPECT_EQ(::send(visitor.get(), "x", 1, MSG_NOSIGNAL), 1);
    EXPECT_FALSE(receive_message(visitor.get())) << "it hangs up";
  }
  hello().reset();
  EXPECT_EQ(exit_status(), 0);
}

TEST_F(KeeperTest, ASuccessorIsWaitedForBeforeAnotherIsStarted) {
  Pipe pipe;
  {
    const auto daemon = hello();
    ask(daemon, {.kind = Kind::kStore, .name = "kept", .body = ""}, pipe.write_end.get());
    ask(daemon, {.kind = Kind::kSuccessor, .name = "", .body = ""});
  }
  {
    const auto successor = hello();
    EXPECT_EQ(take(successor).size(), 1u);
    EXPECT_EQ(starts(), 0u);
    ask(successor, {.kind = Kind::kSuccessor, .name = "", .body = ""});
  }
  pipe.write_end.reset();
  pipe.wait_for_end();  // this one's successor never came
  EXPECT_EQ(exit_status(), 0);
  EXPECT_GE(starts(), 1u);
}

TEST_F(KeeperTest, NonsenseEndsOnlyTheConnectionItCameOn) {
  const auto daemon = hello();
  const auto stranger = connect();
  ASSERT_EQ(::send(stranger.get(), "nonsense", 8, 0), 8);
  EXPECT_FALSE(receive_message(stranger.get()));
  EXPECT_EQ(ask(daemon, {.kind = Kind::kStore, .name = "without a descriptor", .body = ""}).kind, Kind::kRefused);
  EXPECT_EQ(ask(daemon, {.kind = Kind::kEntry, .name = "no request", .body = ""}).kind, Kind::kRefused);
  EXPECT_TRUE(take(daemon).empty());
}

// Two that want another for one that died may both ask for it.
TEST_F(KeeperTest, OneThatLivesIsNotReplaced) {
  const auto store = open_descriptor_store(
      {.socket = dir_ / "s", .keeper = {"/bin/sh", "-c", "exit 1"}, .daemon = {"/bin/true"}, .log_file = dir_ / "log"});
  ASSERT_EQ(store->kind(), "keeper");
  EXPECT_NO_THROW(store->renew());
  const Pipe pipe;
  store->keep("mount", pipe.write_end.get());
  EXPECT_EQ(store->take().count("mount"), 1u);
  store->end();
  EXPECT_EQ(exit_status(), 0);
}

TEST(Handovers, CrossAsTheyAre) {
  const auto image = digest_of("image");
  Handover handover;
  handover.images.push_back({.digest = image,
                             .spec = {.reference = "oci:/srv/image:latest", .platform = "", .registry = {}},
                             .index = digest_of("index")});
  handover.connections.push_back({.name = "varve-1",
                                  .dir = "/run/varve/blobs",
                                  .init_request = to_bytes(as_bytes(std::string_view("\0\xff", 2))),
                                  .by_helper = true,
                                  .tree = {},
                                  .files = {{.index = digest_of("index"), .opened = {true, false}}}});
  handover.connections.push_back({.name = "varve-2",
                                  .dir = "/mnt/a b",
                                  .init_request = {},
                                  .by_helper = false,
                                  .tree = digest_of("index"),
                                  .files = {}});
  handover.mounts.push_back({.dir = "/run/varve/images/x",
                             .index = digest_of("index"),
                             .connection = "varve-1",
                             .mode = MountMode::kKernel,
                             .why = "",
                             .shared = true,
                             .idle_since = IdleTime(std::chrono::seconds(77))});
  handover.names.push_back({.dir = "/mnt/x", .mount = "/run/varve/images/x", .bound = true, .settled = false});
  handover.leases.push_back({.mount = "/run/varve/images/x", .holder = {.pid = 7, .start_time = 8}});
  const auto text = encode_handover(handover);
  const auto again = decode_handover(text);
  EXPECT_EQ(encode_handover(again), text);
  EXPECT_EQ(again.images.at(0).spec.reference, handover.images.at(0).spec.reference);
  EXPECT_EQ(again.connections.at(0).init_request, handover.connections.at(0).init_request);
  EXPECT_EQ(again.connections.at(0).files.at(0).opened, (std::vector<bool>{true, false}));
  EXPECT_EQ(again.mounts.at(0).idle_since, handover.mounts.at(0).idle_since);
  EXPECT_FALSE(again.names.at(0).settled);
  EXPECT_EQ(again.leases.at(0).holder, handover.leases.at(0).holder);
}

TEST(Handovers, OfAnotherFormatOrBrokenAreRefused) {
  EXPECT_THROW(decode_handover(R"({"format": 3})"), Unsupported);
  EXPECT_THROW(decode_handover("{"), CorruptData);
  EXPECT_THROW(decode_handover(R"({"format": 4})"), CorruptData);
  auto text = encode_handover(Handover{});
  EXPECT_NO_THROW(decode_handover(text));
  Handover relative;
  relative.names.push_back({.dir = "mnt", .mount = "/run"});
  EXPECT_THROW(decode_handover(encode_handover(relative)), CorruptData)
      << "a path that depends on where the daemon runs";
}

TEST(LeaseHolders, AreKnownByNumberAndStart) {
  const auto me = find_process(::getpid());
  ASSERT_TRUE(me);
  EXPECT_EQ(find_process(::getpid()), me);
  EXPECT_TRUE(open_process(*me));
  EXPECT_FALSE(open_process({.pid = me->pid, .start_time = me->start_time + 1}))
      << "the number belongs to another process";
  EXPECT_FALSE(find_process(0));
}

TEST(LeaseHolders, AreWatchedToTheirEnd) {
  Pipe lifeline;
  const pid_t child = ::fork();
  if (child == 0) {
    lifeline.write_end.reset();
    char byte = 0;
    ::_exit(::read(lifeline.read_end.get(), &byte, 1) == 0 ? 0 : 1);
  }
  Pipe told;
  std::vector<HolderWatch::Holder> holders;
  holders.push_back({.process = open_process(find_process(child).value()), .on_end = [&] { told.write_end.reset(); }});
  const HolderWatch watch(std::move(holders));
  lifeline.write_end.reset();
  told.wait_for_end();
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(find_process(child));
}

// What a library has open may be inherited. One that a keeper holds is closed to nobody.
TEST(DescriptorStore, AKeeperHoldsNothingThatItWasNotGiven) {
  const test::TempDir dir;
  const auto file = open_file(dir / "of a library", O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::fcntl(file.get(), F_SETFD, 0), 0);
  const auto script =
      fmt::format("cd {}; ls -l /proc/$$/fd > listing; mv listing listed", dir.path().string());  // and it dies
  const auto store = open_descriptor_store({.socket = dir / "socket",
                                            .keeper = {"/bin/sh", "-c", script},
                                            .daemon = {"/bin/true"},
                                            .log_file = dir / "log"});
  EXPECT_EQ(store->kind(), "none");
  for (int i = 0; i < 1000 && !std::filesystem::exists(dir / "listed"); ++i) ::usleep(10'000);
  const auto listed = read_file(dir / "listed");
  EXPECT_NE(as_text(listed).find("log"), std::string_view::npos);
  EXPECT_EQ(as_text(listed).find("of a library"), std::string_view::npos) << as_text(listed);
}

}  // namespace
}  // namespace varve::fuse
