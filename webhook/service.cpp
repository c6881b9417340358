#include "webhook/service.h"

#include <unistd.h>

#include <array>
#include <condition_variable>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file_lock.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "webhook/sweep.h"

namespace varve::webhook {
namespace {

constexpr std::chrono::seconds kLook{1};  // at what other machines have put into the queue
constexpr std::chrono::milliseconds kStopLook{100};
constexpr std::chrono::seconds kAfterTrouble{5};  // with the queue
constexpr std::chrono::minutes kAfterFailedSweep{5};
constexpr std::chrono::hours kRememberDone{24 * 30};
constexpr unsigned kReceivers = 4;

bool is_server(const std::string& queue) { return queue.find("://") != std::string::npos; }

// Wakes workers when something new is there.
class Bell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      ++rung_;
    }
    changed_.notify_all();
  }
  // Until it is rung, `stop` is set or the time is over.
  void wait(std::chrono::milliseconds time, const CancelFlag& stop) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::unique_lock lock(mutex_);
    const auto before = rung_;
    while (rung_ == before && !stop.cancelled() && std::chrono::steady_clock::now() < until)
      changed_.wait_for(lock, kStopLook);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t rung_ = 0;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

class Service {
 public:
  Service(const ServiceOptions& options, const CancelFlag& stop)
      : options_(options),
        settings_(options.settings),
        queue_(queue_of(options.settings, options.root)),
        registry_(options.registry),
        stop_(stop),
        receiver_(settings_, queue_, metrics_, [this] { bell_.ring(); }) {
    registry_.cancel = &stop_;
    if (!is_server(queue_)) {
      std::filesystem::create_directories(std::filesystem::path(queue_).parent_path());
      take_lock();
    }
    WorkQueue queue(queue_);
    if (!is_server(queue_)) queue.release_all();
  }

  void run() {
    HttpServer server(settings_.listen,
                      {.max_connections = kMaxConnections,
                       .max_of_peer = settings_.address_connections,
                       .max_body_bytes = kMaxNotificationBytes,
                       .threads = kReceivers},
                      [this](const HttpRequest& request) { return receiver_.answer(request); });
    std::vector<std::jthread> threads;
    const auto name = fmt::format("{}-{}-{}", host_name(), ::getpid(), random_hex(4));
    for (unsigned i = 0; i < settings_.workers; ++i)
      threads.emplace_back([this, worker = fmt::format("{}-{}", name, i)] { work(worker); });
    if (settings_.sweep.count() > 0) threads.emplace_back([this] { sweep_now_and_then(); });
    log::info("takes notifications of {} at {}; the queue is {}", settings_.registry, server.address().to_string(),
              is_server(queue_) ? "a PostgreSQL database" : queue_);
    if (options_.on_ready) options_.on_ready(server.address());
    while (!stop_.cancelled()) std::this_thread::sleep_for(kStopLook);
    log::info("ends; what is under way stays in the queue");
    server.stop();
  }

 private:
  void take_lock() {
    auto lock = try_lock(queue_ + ".lock");
    if (!lock) fail<TemporaryError>("{}: another webhook has this queue; several share one in PostgreSQL", queue_);
    lock_ = std::move(*lock);
  }

  // What fails is logged and begun again: the database may be away for a while.
  template <typename Work>
  void persist(Work&& work) {
    while (!stop_.cancelled()) {
      try {
        work();
      } catch (const Cancelled&) {
      } catch (const std::exception& error) {
        log::error("{}", error.what());
        bell_.wait(kAfterTrouble, stop_);
      }
    }
  }

  void work(const std::string& name) {
    persist([&] {
      Worker worker(settings_, options_.tools, registry_, metrics_, name, queue_);
      while (!stop_.cancelled())
        if (!worker.work(stop_)) bell_.wait(kLook, stop_);
    });
  }

  // At once, for what was pushed while nobody listened.
  void sweep_now_and_then() {
    auto interval = std::chrono::seconds(0);
    persist([&] {
      WorkQueue queue(queue_);
      while (!stop_.cancelled()) {
        if (queue.begin_sweep(interval)) {
          queue.forget_done(kRememberDone);
          const auto swept = sweep(settings_, registry_, queue, metrics_, stop_);
          metrics_.note_sweep(swept.failed == 0);
          interval =
              swept.failed == 0 ? settings_.sweep : std::min<std::chrono::seconds>(settings_.sweep, kAfterFailedSweep);
          log::info("sweep: {} repositories, {} tags, {} new images{}", swept.repositories, swept.tags, swept.queued,
                    swept.failed == 0 ? "" : fmt::format(", {} could not be read", swept.failed));
          if (swept.queued > 0) bell_.ring();
        }
        const auto next =
            std::chrono::steady_clock::now() + std::min<std::chrono::seconds>(settings_.sweep, std::chrono::minutes(1));
        while (!stop_.cancelled() && std::chrono::steady_clock::now() < next) std::this_thread::sleep_for(kStopLook);
      }
    });
  }

  const ServiceOptions& options_;
  const Settings& settings_;
  const std::string queue_;
  oci::RegistryOptions registry_;
  const CancelFlag& stop_;
  UniqueFd lock_;
  Bell bell_;
  WebhookMetrics metrics_;
  Receiver receiver_;
};

}  // namespace

std::string queue_of(const Settings& settings, const std::filesystem::path& root) {
  return settings.queue.empty() ? (root / "webhook.db").string() : settings.queue;
}

void run_service(const ServiceOptions& options, const CancelFlag& stop) { Service(options, stop).run(); }

}  // namespace varve::webhook
