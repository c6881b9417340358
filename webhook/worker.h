#pragma once
// Does what is in the queue: finds out what was pushed, and has it indexed, signed and learnt by programs of their own,
// so that an image that breaks one breaks nothing else.
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/process/child_process.h"
#include "core/base/threads/cancel.h"
#include "core/oci/repository.h"
#include "webhook/rules.h"
#include "webhook/webhook_metrics.h"
#include "webhook/work_queue.h"

namespace varve::webhook {

// How `varve` is called for one command; without its words.
struct Tools {
  std::vector<std::string> varve;  // the program and options of every command
  // What run_child() does, but for tests.
  std::function<ChildResult(const ChildProgram&, const CancelFlag&)> run = run_child;
};

// What came of one attempt.
struct Outcome {
  enum class Kind : std::uint8_t { kDone, kNoImage, kFailed, kLater };
  Kind kind = Kind::kDone;
  std::string reason;
};

// Used by one thread. What it is given outlives it.
class Worker {
 public:
  Worker(const Settings& settings, const Tools& tools, const oci::RegistryOptions& registry, WebhookMetrics& metrics,
         std::string name, const std::string& queue)
      : settings_(settings),
        tools_(tools),
        registry_(registry),
        metrics_(metrics),
        name_(std::move(name)),
        queue_(queue) {}

  // One job, if one is due; false if there is none. What is cancelled goes back into the queue as if it had not been
  // taken. Throws as WorkQueue does.
  bool work(const CancelFlag& stop);

 private:
  Outcome attempt(const Job& job, const CancelFlag& cancel);
  std::vector<Digest> images_of(oci::Repository& repository, const oci::Document& document, const Rule& rule) const;
  // Absent: go on.
  std::optional<Outcome> index(const Rule& rule, const std::string& image, const std::string& previous,
                               const CancelFlag& cancel) const;
  std::string previous_of(const Rule& rule, const Job& job, const CancelFlag& cancel);
  Outcome learn(const Rule& rule, const Job& job, const std::vector<std::string>& images, const CancelFlag& cancel);
  enum class By : std::uint8_t { kAnybody, kSigners };
  bool is_vouched_for(By by, const std::string& image, const CancelFlag& cancel) const;
  ChildResult run(std::vector<std::string> words, const CancelFlag& cancel) const;
  void settle(const Job& job, const Outcome& outcome);

  const Settings& settings_;
  const Tools& tools_;
  const oci::RegistryOptions& registry_;
  WebhookMetrics& metrics_;
  const std::string name_;
  std::mutex mutex_;  // of queue_: the lease is renewed meanwhile
  WorkQueue queue_;
};

}  // namespace varve::webhook
