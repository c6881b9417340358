#include "snapshotter/snapshot_service.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "snapshots.grpc.pb.h"

namespace varve::snapshotter {
namespace {

namespace api = containerd::services::snapshots::v1;

constexpr int kMostThreads = 96;  // calls that wait for a look-up or a mount have one each; the others end at once
constexpr int kMemoryBytes = 64 << 20;
constexpr int kMostStreams = 256;              // of a connection
constexpr std::size_t kMostErrorBytes = 2000;  // it travels in a header
constexpr std::int64_t kNanoseconds = 1'000'000'000;

grpc::StatusCode code_of(const std::exception& error) {
  const auto is = [&]<typename Kind>(const Kind*) { return dynamic_cast<const Kind*>(&error) != nullptr; };
  if (is(static_cast<AlreadyExists*>(nullptr))) return grpc::StatusCode::ALREADY_EXISTS;
  if (is(static_cast<NotFound*>(nullptr))) return grpc::StatusCode::NOT_FOUND;
  if (is(static_cast<UsageError*>(nullptr))) return grpc::StatusCode::INVALID_ARGUMENT;
  if (is(static_cast<FailedPrecondition*>(nullptr))) return grpc::StatusCode::FAILED_PRECONDITION;
  if (is(static_cast<Unsupported*>(nullptr))) return grpc::StatusCode::FAILED_PRECONDITION;
  if (is(static_cast<TemporaryError*>(nullptr))) return grpc::StatusCode::UNAVAILABLE;
  return grpc::StatusCode::INTERNAL;
}

const char* name_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "ok";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "already_exists";
    case grpc::StatusCode::NOT_FOUND:
      return "not_found";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "invalid_argument";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "failed_precondition";
    case grpc::StatusCode::UNAVAILABLE:
      return "unavailable";
    default:
      return "internal";
  }
}

class Meter {
 public:
  Meter(Snapshots& snapshots, MetricRegistry& metrics)
      : calls_(metrics.counter({.name = "varve_snapshotter_calls_total",
                                .help = "Calls of containerd that were answered.",
                                .labels = {"call", "code"},
                                .max_series = 80})),
        seconds_(metrics.histogram({.name = "varve_snapshotter_call_duration_seconds",
                                    .help = "How long calls of containerd took.",
                                    .labels = {"call"},
                                    .bounds = duration_bounds()})) {
    auto& refused = metrics.counter({.name = "varve_snapshotter_refused_images_total",
                                     .help = "Decisions to fetch all layers of an image that was pulled."});
    auto& kinds = metrics.gauge({.name = "varve_snapshotter_snapshots",
                                 .help = "Snapshots in the table, by what they are.",
                                 .labels = {"kind"}});
    metrics.before_text([&snapshots, &refused, &kinds, counted = std::uint64_t(0)]() mutable {
      const auto refusals = snapshots.images().refused();
      refused->add(refusals - std::exchange(counted, refusals));
      const auto counts = snapshots.counts();
      kinds.of({"active"}).set(double(counts.active));
      kinds.of({"view"}).set(double(counts.views));
      kinds.of({"unpacked"}).set(double(counts.unpacked));
      kinds.of({"placeholder"}).set(double(counts.placeholders));
    });
  }
  void count(const char* call, grpc::StatusCode code, double seconds) {
    calls_.of({call, name_of(code)}).add();
    seconds_.of({call}).observe(seconds);
  }

 private:
  MetricSeries<Counter>& calls_;
  MetricSeries<Histogram>& seconds_;
};

Labels labels_of(const google::protobuf::Map<std::string, std::string>& from) { return {from.begin(), from.end()}; }

void set_time(google::protobuf::Timestamp& to, std::int64_t ns) {
  to.set_seconds(ns / kNanoseconds);
  to.set_nanos(std::int32_t(ns % kNanoseconds));
}

void set_info(api::Info& to, const Snapshot& from) {
  to.set_name(from.name);
  to.set_parent(from.parent);
  to.set_kind(api::Kind(from.kind));
  set_time(*to.mutable_created_at(), from.created_ns);
  set_time(*to.mutable_updated_at(), from.updated_ns);
  to.mutable_labels()->insert(from.labels.begin(), from.labels.end());
}

template <typename Response>
void set_mounts(Response& to, const std::vector<Mount>& mounts) {
  for (const auto& from : mounts) {
    auto& mount = *to.add_mounts();
    mount.set_type(from.type);
    mount.set_source(from.source);
    for (const auto& option : from.options) mount.add_options(option);
  }
}

class Service final : public api::Snapshots::Service {
 public:
  using Context = grpc::ServerContext;
  using Empty = google::protobuf::Empty;
  Service(Snapshots& snapshots, MetricRegistry& metrics) : snapshots_(snapshots), meter_(snapshots, metrics) {}

  grpc::Status Prepare(Context*, const api::PrepareSnapshotRequest* request,
                       api::PrepareSnapshotResponse* response) override {
    return answer("Prepare", [&] {
      set_mounts(*response, snapshots_.prepare(request->key(), request->parent(), labels_of(request->labels())));
    });
  }
  grpc::Status View(Context*, const api::ViewSnapshotRequest* request, api::ViewSnapshotResponse* response) override {
    return answer("View", [&] {
      set_mounts(*response, snapshots_.view(request->key(), request->parent(), labels_of(request->labels())));
    });
  }
  grpc::Status Mounts(Context*, const api::MountsRequest* request, api::MountsResponse* response) override {
    return answer("Mounts", [&] { set_mounts(*response, snapshots_.mounts(request->key())); });
  }
  grpc::Status Commit(Context*, const api::CommitSnapshotRequest* request, Empty*) override {
    return answer("Commit", [&] {
      snapshots_.commit(request->name(), request->key(), labels_of(request->labels()), request->parent());
    });
  }
  grpc::Status Remove(Context*, const api::RemoveSnapshotRequest* request, Empty*) override {
    return answer("Remove", [&] { snapshots_.remove(request->key()); });
  }
  grpc::Status Stat(Context*, const api::StatSnapshotRequest* request, api::StatSnapshotResponse* response) override {
    return answer("Stat", [&] { set_info(*response->mutable_info(), snapshots_.stat(request->key())); });
  }
  grpc::Status Update(Context*, const api::UpdateSnapshotRequest* request,
                      api::UpdateSnapshotResponse* response) override {
    return answer("Update", [&] {
      const auto& paths = request->update_mask().paths();
      set_info(*response->mutable_info(), snapshots_.update(request->info().name(), labels_of(request->info().labels()),
                                                            {paths.begin(), paths.end()}));
    });
  }
  grpc::Status List(Context* context, const api::ListSnapshotsRequest*,
                    grpc::ServerWriter<api::ListSnapshotsResponse>* writer) override {
    return answer("List", [&] {
      std::int64_t after = 0;
      while (!context->IsCancelled()) {
        const auto batch = snapshots_.list(after, kListBatch);
        if (batch.empty()) return;
        api::ListSnapshotsResponse response;
        for (const auto& one : batch) set_info(*response.add_info(), one);
        if (!writer->Write(response)) return;
        after = batch.back().id;
      }
    });
  }
  grpc::Status Usage(Context*, const api::UsageRequest* request, api::UsageResponse* response) override {
    return answer("Usage", [&] {
      const auto usage = snapshots_.usage(request->key());
      response->set_size(usage.bytes);
      response->set_inodes(usage.inodes);
    });
  }
  grpc::Status Cleanup(Context*, const api::CleanupRequest*, Empty*) override {
    return answer("Cleanup", [&] { snapshots_.cleanup(); });
  }

 private:
  // Every call ends here, so that no exception leaves it.
  template <typename Call>
  grpc::Status answer(const char* name, Call&& call) noexcept {
    const Stopwatch watch;
    auto status = status_of(name, std::forward<Call>(call));
    meter_.count(name, status.error_code(), watch.seconds());
    return status;
  }
  template <typename Call>
  static grpc::Status status_of(const char* name, Call&& call) {
    try {
      call();
      return grpc::Status::OK;
    } catch (const std::exception& error) {
      const auto code = code_of(error);
      const auto text = single_line(error_text(error), kMostErrorBytes);
      if (code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNAVAILABLE)
        log::error("{}: {}", name, text);
      else
        log::debug("{}: {}", name, text);
      return {code, text};
    }
  }

  Snapshots& snapshots_;
  Meter meter_;
};

std::unique_ptr<grpc::Server> start_server(grpc::Service& service) {
  grpc::ResourceQuota quota;
  quota.SetMaxThreads(kMostThreads);
  quota.Resize(kMemoryBytes);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (server == nullptr) fail<Error>("the gRPC server does not start");
  return server;
}

}  // namespace

struct SnapshotServer::Parts {
  Parts(Snapshots& snapshots, MetricRegistry& metrics) : service(snapshots, metrics), server(start_server(service)) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
};

SnapshotServer::SnapshotServer(Snapshots& snapshots, MetricRegistry& metrics)
    : parts_(std::make_unique<Parts>(snapshots, metrics)) {}

SnapshotServer::~SnapshotServer() { end(std::chrono::milliseconds(0)); }

void SnapshotServer::serve(UniqueFd connection) {
  const int flags = ::fcntl(connection.get(), F_GETFL);
  if (flags < 0 || ::fcntl(connection.get(), F_SETFL, flags | O_NONBLOCK) != 0) fail_errno("prepare a connection");
  grpc::AddInsecureChannelFromFd(parts_->server.get(), connection.release());
}

void SnapshotServer::end(std::chrono::milliseconds patience) {
  parts_->server->Shutdown(std::chrono::system_clock::now() + patience);
}

}  // namespace varve::snapshotter
