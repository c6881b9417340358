// The step "nccl": sums over sets of devices.
#include <memory>

#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

const LibraryNames kNcclNames = {"libnccl.so.2"};
using Nccl = Api<api::NcclFunctions>;
constexpr int kAllSubsets = 4;  // up to so many devices, every set of them is tried

// Sets in order of size: all where there are few devices, else each alone, each pair, and the first three, four ... of
// them.
std::vector<std::vector<int>> device_sets(int count) {
  std::vector<std::vector<int>> sets;
  if (count <= kAllSubsets) {
    for (int bits = 1; bits < 1 << count; ++bits) {
      sets.emplace_back();
      for (int i = 0; i < count; ++i) {
        if (bits >> i & 1) sets.back().push_back(i);
      }
    }
    std::ranges::stable_sort(sets, {}, [](const auto& set) { return set.size(); });
    return sets;
  }
  for (int i = 0; i < count; ++i) sets.push_back({i});
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j) sets.push_back({i, j});
  }
  for (int size = 3; size <= count; ++size) {
    sets.emplace_back();
    for (int i = 0; i < size; ++i) sets.back().push_back(i);
  }
  return sets;
}

// Communicators over one set, each with its device, stream and numbers. Whole numbers, so that sums are exact.
class Group {
 public:
  Group(const Driver& driver, const Nccl& nccl, const std::vector<std::unique_ptr<Device>>& devices,
        std::vector<int> set, std::size_t count)
      : nccl_(nccl), devices_(devices), set_(std::move(set)), count_(count), comms_(set_.size(), nullptr) {
    std::vector<float> numbers(count_);
    for (std::size_t rank = 0; rank < set_.size(); ++rank) {
      device(rank).make_current();
      for (std::size_t i = 0; i < count_; ++i) numbers[i] = number(rank, i);
      send_.emplace_back(driver, numbers);
      receive_.emplace_back(driver, count_);
      streams_.emplace_back(driver);
    }
    synchronize();
  }
  ~Group() {
    for (auto* comm : comms_) {
      if (comm) nccl_.ncclCommDestroy(comm);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void connect() {
    nccl_.call(nccl_.ncclCommInitAll, comms_.data(), static_cast<int>(set_.size()),
               static_cast<const int*>(set_.data()));
  }
  void all_reduce() const {
    nccl_.call(nccl_.ncclGroupStart);
    for (std::size_t rank = 0; rank < set_.size(); ++rank) {
      nccl_.call(nccl_.ncclAllReduce, static_cast<const void*>(send_[rank].get()),
                 static_cast<void*>(receive_[rank].get()), count_, api::kNcclFloat32, api::kNcclSum, comms_[rank],
                 streams_[rank].get());
    }
    nccl_.call(nccl_.ncclGroupEnd);
  }
  void synchronize() const {
    for (std::size_t rank = 0; rank < set_.size(); ++rank) {
      device(rank).make_current();
      device(rank).synchronize();
    }
  }
  void check() const {
    for (std::size_t rank = 0; rank < set_.size(); ++rank) {
      api::NcclResult error = api::kNcclSuccess;
      nccl_.call(nccl_.ncclCommGetAsyncError, comms_[rank], &error);
      if (error != api::kNcclSuccess)
        fail<Error>("NCCL on devices {}: rank {} met {}", fmt::join(set_, ","), rank, error_name(nccl_, error));
      device(rank).make_current();
      const auto sums = receive_[rank].download();
      for (std::size_t i = 0; i < count_; ++i) {
        float expected = 0;
        for (std::size_t other = 0; other < set_.size(); ++other) expected += number(other, i);
        if (!(sums[i] == expected))
          fail<Error>("ncclAllReduce on devices {}: on device {} sum {} is {} instead of {}", fmt::join(set_, ","),
                      set_[rank], i, sums[i], expected);
      }
    }
  }
  void forget() const {
    for (std::size_t rank = 0; rank < set_.size(); ++rank) {
      device(rank).make_current();
      receive_[rank].fill_with_nan();
    }
    synchronize();
  }

 private:
  static float number(std::size_t rank, std::size_t i) { return static_cast<float>(i % 9973 * (rank + 1) + rank); }
  const Device& device(std::size_t rank) const { return *devices_[static_cast<std::size_t>(set_[rank])]; }
  const Nccl& nccl_;
  const std::vector<std::unique_ptr<Device>>& devices_;
  std::vector<int> set_;
  std::size_t count_;
  std::vector<DeviceArray<float>> send_, receive_;
  std::vector<Stream> streams_;
  std::vector<api::NcclComm> comms_;
};

double timed_sums(const Step& step, DeviceWatch& watch, const Group& group) {
  std::vector<double> seconds;
  for (int i = 0; i < step.repetitions; ++i) {
    seconds.push_back(seconds_of([&] {
      group.all_reduce();
      group.synchronize();
    }));
    watch.sample();
  }
  return median(seconds);
}

}  // namespace

std::string run_nccl(Step& step) {
  const auto driver = open_driver(step.report, step.folders);
  DeviceWatch watch(step.report, step.folders);
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < device_count(driver); ++i) {
    step.report.step(fmt::format("making a context on device {}", i));
    devices.push_back(std::make_unique<Device>(driver, i));
    watch.add(devices.back()->facts());
  }
  const auto nccl = open_api<api::NcclFunctions>(step, kNcclNames);
  tell_version(step, nccl, nccl.ncclGetVersion, "nccl");
  const std::size_t count = step.size_or(std::size_t{1} << 24);
  const auto sets = device_sets(static_cast<int>(devices.size()));
  for (const auto& set : sets) {
    const auto name = fmt::format("devices {}", fmt::join(set, ","));
    Group group(driver, nccl, devices, set, count);
    step.report.step("ncclCommInitAll on " + name);
    const double init = seconds_of([&] { group.connect(); });
    if (&set == &sets.front()) step.report.metric("nccl.init", MetricKind::kFirstCall, init);
    step.report.step("ncclAllReduce on " + name);
    group.all_reduce();
    group.synchronize();
    group.check();
    if (&set != &sets.back()) continue;
    group.forget();
    // The number of devices is part of the metric's name: what eight take is no history for one.
    step.report.metric(fmt::format("nccl.allreduce.{}", set.size()), MetricKind::kSteady,
                       timed_sums(step, watch, group));
    group.check();
  }
  return fmt::format("all-reduce of {} floats, exact on {} set{} of {} device{}", count, sets.size(),
                     sets.size() == 1 ? "" : "s", devices.size(), devices.size() == 1 ? "" : "s");
}

}  // namespace varve::gpu::probe
