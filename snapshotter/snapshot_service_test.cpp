// The sequences of calls that containerd was seen to make, through gRPC as it makes them.
#include "snapshotter/snapshot_service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <algorithm>
#include <latch>
#include <thread>

#include "core/base/errors.h"
#include "snapshots.grpc.pb.h"
#include "testing/fake_trees.h"
#include "testing/temp_dir.h"

namespace varve::snapshotter {
namespace {

namespace api = containerd::services::snapshots::v1;
namespace fs = std::filesystem;
using grpc::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// What containerd keeps: our names for chain IDs, and its own rules.
class SnapshotServiceTest : public testing::Test {
 protected:
  SnapshotServiceTest() { start(); }

  void start() {
    stub_.reset();
    server_.reset();
    snapshots_.reset();
    SnapshotsOptions options;
    options.now_ns = [] { return std::int64_t(1'600'000'000) * 1'000'000'000 + 5; };
    options.lazy.now = [] { return std::int64_t(1'600'000'000); };
    snapshots_.emplace(dir_ / "snapshotter", trees_, options);
    metrics_ = std::make_unique<MetricRegistry>();
    server_.emplace(*snapshots_, *metrics_);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    server_->serve(UniqueFd(ends[0]));
    grpc::ChannelArguments limits;
    limits.SetMaxReceiveMessageSize(kMaxMessageBytes);
    stub_ = api::Snapshots::NewStub(grpc::CreateCustomInsecureChannelFromFd("snapshotter", ends[1], limits));
  }

  // One call; the code is what containerd goes by.
  template <typename Response, typename Request>
  StatusCode call(grpc::Status (api::Snapshots::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  Request request, Response* response = nullptr) {
    request.set_snapshotter("varve");
    grpc::ClientContext context;
    context.AddMetadata("containerd-namespace", "k8s.io");
    context.AddMetadata("containerd-lease", "1234");
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Response ignored;
    const auto status = (stub_.get()->*method)(&context, request, response == nullptr ? &ignored : response);
    message_ = status.error_message();
    return status.error_code();
  }
  StatusCode prepare(const std::string& key, const std::string& parent, const Labels& labels = {}) {
    api::PrepareSnapshotRequest request;
    request.set_key(key);
    request.set_parent(parent);
    request.mutable_labels()->insert(labels.begin(), labels.end());
    api::PrepareSnapshotResponse response;
    const auto code = call(&api::Snapshots::Stub::Prepare, request, &response);
    mounts_.assign(response.mounts().begin(), response.mounts().end());
    return code;
  }
  StatusCode view(const std::string& key, const std::string& parent) {
    api::ViewSnapshotRequest request;
    request.set_key(key);
    request.set_parent(parent);
    api::ViewSnapshotResponse response;
    const auto code = call(&api::Snapshots::Stub::View, request, &response);
    mounts_.assign(response.mounts().begin(), response.mounts().end());
    return code;
  }
  StatusCode mounts(const std::string& key) {
    api::MountsRequest request;
    request.set_key(key);
    api::MountsResponse response;
    const auto code = call(&api::Snapshots::Stub::Mounts, request, &response);
    mounts_.assign(response.mounts().begin(), response.mounts().end());
    return code;
  }
  StatusCode commit(const std::string& name, const std::string& key) {
    api::CommitSnapshotRequest request;
    request.set_name(name);
    request.set_key(key);
    return call(&api::Snapshots::Stub::Commit, request);
  }
  StatusCode remove(const std::string& key) {
    api::RemoveSnapshotRequest request;
    request.set_key(key);
    return call(&api::Snapshots::Stub::Remove, request);
  }
  StatusCode cleanup() { return call(&api::Snapshots::Stub::Cleanup, api::CleanupRequest()); }
  StatusCode stat(const std::string& key) {
    api::StatSnapshotRequest request;
    request.set_key(key);
    api::StatSnapshotResponse response;
    const auto code = call(&api::Snapshots::Stub::Stat, request, &response);
    info_ = response.info();
    return code;
  }
  std::vector<api::Info> list() {
    grpc::ClientContext context;
    api::ListSnapshotsRequest request;
    request.set_snapshotter("varve");
    const auto reader = stub_->List(&context, request);
    std::vector<api::Info> all;
    api::ListSnapshotsResponse batch;
    while (reader->Read(&batch)) {
      EXPECT_LE(std::size_t(batch.info_size()), kListBatch);
      all.insert(all.end(), batch.info().begin(), batch.info().end());
    }
    EXPECT_TRUE(reader->Finish().ok());
    return all;
  }

  // PullImage of an image with an index: per layer Prepare, List, Stat. Returns our names.
  std::vector<std::string> pull(const KnownImage& image) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < image.chain.size(); ++i) {
      const auto parent = i == 0 ? "" : names.back();
      const auto key = fmt::format("k8s.io/{}/extract-123-abc {}", ++number_, image.chain[i]);
      EXPECT_EQ(prepare(key, parent,
                        {{kSnapshotRefLabel, image.chain[i]},
                         {kImageRefLabel, "registry.example/app:v1"},
                         {kManifestDigestLabel, image.image.to_string()},
                         {"containerd.io/snapshot/cri.layer-digest", digest_of("layer").to_string()}}),
                StatusCode::ALREADY_EXISTS)
          << message_;
      std::string ours;
      for (const auto& one : list())
        if (one.kind() == api::COMMITTED && one.parent() == parent && one.labels().contains(kSnapshotRefLabel) &&
            one.labels().at(kSnapshotRefLabel) == image.chain[i])
          ours = one.name();
      EXPECT_EQ(stat(ours), StatusCode::OK);
      names.push_back(ours);
    }
    return names;
  }
  std::string option(const std::string& name) const {
    for (const auto& mount : mounts_)
      for (const auto& one : mount.options())
        if (one.rfind(name + "=", 0) == 0) return one.substr(name.size() + 1);
    return "";
  }
  std::string tree(std::uint32_t layers) const { return trees_.dir_of({app_.image, layers}).string(); }

  test::TempDir dir_;
  test::FakeTrees trees_{dir_ / "trees"};
  const KnownImage app_ = test::made_image("app", {"one", "two", "three", "four"});
  std::optional<Snapshots> snapshots_;
  std::unique_ptr<MetricRegistry> metrics_;
  std::optional<SnapshotServer> server_;
  std::unique_ptr<api::Snapshots::Stub> stub_;
  std::string message_;
  std::vector<api::Mount> mounts_;
  api::Info info_;
  int number_ = 0;
};

TEST_F(SnapshotServiceTest, APodOfAnIndexedImage) {
  trees_.add(app_);
  const auto names = pull(app_);
  for (const auto& name : names) EXPECT_EQ(stat(name), StatusCode::OK);  // PullImage again, and of c1 c2

  // RunPodSandbox of the pause image, which is the first layer; then the container.
  ASSERT_EQ(prepare("k8s.io/5/sandbox", names[0]), StatusCode::OK) << message_;
  EXPECT_EQ(option("lowerdir"), tree(1));
  ASSERT_EQ(mounts("k8s.io/5/sandbox"), StatusCode::OK);
  ASSERT_EQ(prepare("k8s.io/6/container", names[3]), StatusCode::OK);
  ASSERT_THAT(mounts_, SizeIs(1));
  EXPECT_EQ(mounts_[0].type(), "overlay");
  EXPECT_EQ(option("lowerdir"), tree(4));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(mounts("k8s.io/6/container"), StatusCode::OK);

  // Every 10 s.
  for (const auto& one : list()) EXPECT_EQ(stat(one.name()), StatusCode::OK);
  api::UsageRequest usage;
  usage.set_key(names[3]);
  api::UsageResponse used;
  EXPECT_EQ(call(&api::Snapshots::Stub::Usage, usage, &used), StatusCode::OK);
  EXPECT_EQ(used.size(), 0);
  usage.set_key("k8s.io/6/container");
  EXPECT_EQ(call(&api::Snapshots::Stub::Usage, usage, &used), StatusCode::OK);
  EXPECT_EQ(used.inodes(), 1);

  // RemoveContainer, RemovePodSandbox, RemoveImage; c1 stays with pause.
  for (const auto* key : {"k8s.io/6/container", "k8s.io/5/sandbox"}) {
    EXPECT_THAT(list(), testing::Not(IsEmpty()));
    EXPECT_EQ(remove(key), StatusCode::OK);
    EXPECT_EQ(cleanup(), StatusCode::OK);
  }
  EXPECT_THAT(trees_.held(), IsEmpty());
  EXPECT_EQ(remove(names[2]), StatusCode::FAILED_PRECONDITION) << "it has a child";
  for (const auto i : {3u, 2u, 1u}) EXPECT_EQ(remove(names[i]), StatusCode::OK);
  EXPECT_EQ(cleanup(), StatusCode::OK);
  EXPECT_THAT(list(), SizeIs(1));
}

TEST_F(SnapshotServiceTest, APodOfAPlainImage) {
  std::string parent;
  for (int i = 1; i <= 3; ++i) {
    const auto key = fmt::format("k8s.io/{}/extract-9 c{}", i, i);
    ASSERT_EQ(prepare(key, parent,
                      {{kSnapshotRefLabel, fmt::format("c{}", i)},
                       {kImageRefLabel, "registry.example/plain:v1"},
                       {kManifestDigestLabel, digest_of("plain").to_string()}}),
              StatusCode::OK);
    EXPECT_EQ(mounts_[0].type(), i == 1 ? "bind" : "overlay");
    parent = fmt::format("k8s.io/{}/c{}", i, i);
    ASSERT_EQ(commit(parent, key), StatusCode::OK);
  }
  EXPECT_EQ(trees_.look_ups(), 1u) << "decided at the first layer";
  ASSERT_EQ(prepare("k8s.io/7/container", parent), StatusCode::OK);
  const auto lower = option("lowerdir");
  EXPECT_EQ(std::ranges::count(lower, ':'), 2);
  EXPECT_EQ(lower.find(dir_.path().string()), 0u);
}

TEST_F(SnapshotServiceTest, ADockerContainer) {
  trees_.add(app_);
  const auto names = pull(app_);
  ASSERT_EQ(stat(names[3]), StatusCode::OK);
  ASSERT_EQ(prepare("moby/5/1234-init-key", names[3]), StatusCode::OK);
  const auto init_upper = option("upperdir");
  ASSERT_EQ(commit("moby/6/1234-init", "moby/5/1234-init-key"), StatusCode::OK);
  ASSERT_EQ(prepare("moby/7/1234", "moby/6/1234-init"), StatusCode::OK);
  EXPECT_EQ(option("lowerdir"), init_upper + ":" + tree(4));
  ASSERT_EQ(mounts("moby/7/1234"), StatusCode::OK);
  EXPECT_EQ(cleanup(), StatusCode::OK);
  EXPECT_THAT(trees_.held(), SizeIs(1)) << "the container needs it, though the snapshot right above it is committed";
}

TEST_F(SnapshotServiceTest, AViewForADiff) {
  trees_.add(app_);
  const auto names = pull(app_);
  ASSERT_EQ(view("default/8/diff-lower", names[2]), StatusCode::OK);
  EXPECT_EQ(mounts_[0].source(), tree(3));
  ASSERT_EQ(view("default/9/diff-upper", names[3]), StatusCode::OK);
  EXPECT_THAT(mounts_[0].options(), ElementsAre("ro", "rbind"));
}

TEST_F(SnapshotServiceTest, ARestartWhileAContainerRuns) {
  trees_.add(app_);
  const auto names = pull(app_);
  ASSERT_EQ(prepare("k8s.io/6/container", names[3]), StatusCode::OK);
  const auto lower = option("lowerdir");
  start();
  for (const auto& name : names) EXPECT_EQ(stat(name), StatusCode::OK);
  EXPECT_EQ(mounts("k8s.io/6/container"), StatusCode::OK);
  EXPECT_EQ(option("lowerdir"), lower);
  EXPECT_EQ(prepare("k8s.io/7/second", names[3]), StatusCode::OK);
}

TEST_F(SnapshotServiceTest, TellsAllThatAnInfoHas) {
  ASSERT_EQ(prepare("k", "", {{"a", "b"}}), StatusCode::OK);
  ASSERT_EQ(stat("k"), StatusCode::OK);
  EXPECT_EQ(info_.name(), "k");
  EXPECT_EQ(info_.parent(), "");
  EXPECT_EQ(info_.kind(), api::ACTIVE);
  EXPECT_EQ(info_.created_at().seconds(), 1'600'000'000);
  EXPECT_EQ(info_.created_at().nanos(), 5);
  EXPECT_EQ(info_.updated_at().seconds(), 1'600'000'000);
  EXPECT_EQ(info_.labels().at("a"), "b");
  api::UpdateSnapshotRequest request;
  request.mutable_info()->set_name("k");
  (*request.mutable_info()->mutable_labels())["c"] = "d";
  request.mutable_update_mask()->add_paths("labels.c");
  api::UpdateSnapshotResponse response;
  EXPECT_EQ(call(&api::Snapshots::Stub::Update, request, &response), StatusCode::OK);
  EXPECT_EQ(response.info().labels().size(), 2u);
  request.mutable_update_mask()->add_paths("kind");
  EXPECT_EQ(call(&api::Snapshots::Stub::Update, request, &response), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SnapshotServiceTest, GivesTheCodesThatContainerdGoesBy) {
  EXPECT_EQ(prepare("x", "nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(view("x", "nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(mounts("nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(stat("nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(remove("nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(commit("c", "nothing"), StatusCode::NOT_FOUND);
  EXPECT_EQ(prepare("active", ""), StatusCode::OK);
  EXPECT_EQ(prepare("x", "active"), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(prepare("active", ""), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(prepare("", ""), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(commit("c", "active"), StatusCode::OK);
  EXPECT_EQ(prepare("active", "c"), StatusCode::OK);
  EXPECT_EQ(commit("c", "active"), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(commit("d", "c"), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(remove("c"), StatusCode::FAILED_PRECONDITION);
  trees_.add(app_);
  const auto names = pull(app_);
  trees_.before_hold = [] { fail<TemporaryError>("the daemon\nis away"); };
  EXPECT_EQ(prepare("y", names[3]), StatusCode::UNAVAILABLE);
  EXPECT_THAT(message_, testing::HasSubstr("the daemon is away"));
  trees_.before_hold = [] { throw std::runtime_error("anything"); };
  EXPECT_EQ(prepare("y", names[3]), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(stat("y"), StatusCode::NOT_FOUND);
}

TEST_F(SnapshotServiceTest, CountsWhatItAnswers) {
  EXPECT_EQ(prepare("plain", "",
                    {{kSnapshotRefLabel, "c"},
                     {kImageRefLabel, "registry.example/p"},
                     {kManifestDigestLabel, app_.image.to_string()}}),
            StatusCode::OK);
  EXPECT_EQ(stat("nothing"), StatusCode::NOT_FOUND);
  const auto text = metrics_->text();
  for (const auto* line :
       {"varve_snapshotter_calls_total{call=\"Prepare\",code=\"ok\"} 1\n",
        "varve_snapshotter_calls_total{call=\"Stat\",code=\"not_found\"} 1\n",
        "varve_snapshotter_call_duration_seconds_count{call=\"Prepare\"} 1\n",
        "varve_snapshotter_refused_images_total 1\n", "varve_snapshotter_snapshots{kind=\"active\"} 1\n"})
    EXPECT_THAT(text, testing::HasSubstr(line));
}

TEST_F(SnapshotServiceTest, ListsManyInBatches) {
  for (int i = 0; i < 120; ++i) snapshots_->prepare(fmt::format("snapshot {}", i), "", {{"n", std::to_string(i)}});
  const auto all = list();
  ASSERT_THAT(all, SizeIs(120));
  EXPECT_EQ(all.back().name(), "snapshot 119");
}

TEST_F(SnapshotServiceTest, RefusesMessagesThatAreTooLarge) {
  Labels huge;
  for (int i = 0; i < 5000; ++i) huge[std::to_string(i)] = std::string(4000, 'x');
  EXPECT_EQ(prepare("x", "", huge), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(prepare("x", ""), StatusCode::OK) << "the connection goes on";
}

TEST_F(SnapshotServiceTest, AnswersOthersWhileAPrepareWaits) {
  trees_.add(app_);
  std::latch asked(1), answered(1);
  trees_.before_look_up = [&] {
    asked.count_down();
    answered.wait();
  };
  std::jthread slow([&] {
    grpc::ClientContext context;
    api::PrepareSnapshotRequest request;
    request.set_key("slow");
    (*request.mutable_labels())[kSnapshotRefLabel] = app_.chain[0];
    (*request.mutable_labels())[kImageRefLabel] = "registry.example/app:v1";
    (*request.mutable_labels())[kManifestDigestLabel] = app_.image.to_string();
    api::PrepareSnapshotResponse response;
    EXPECT_EQ(stub_->Prepare(&context, request, &response).error_code(), StatusCode::ALREADY_EXISTS);
  });
  asked.wait();
  EXPECT_EQ(prepare("fast", ""), StatusCode::OK);
  EXPECT_EQ(cleanup(), StatusCode::OK);
  answered.count_down();
}

}  // namespace
}  // namespace varve::snapshotter
