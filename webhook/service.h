#pragma once
// The webhook as a program: receiver, workers and sweeps until it is stopped.
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/threads/cancel.h"
#include "webhook/receiver.h"
#include "webhook/worker.h"

namespace varve::webhook {

struct ServiceOptions {
  Settings settings;
  std::filesystem::path root;  // where the queue is unless the settings say otherwise
  Tools tools;
  oci::RegistryOptions registry;
  std::function<void(const ListenAddress&)> on_ready = {};  // it listens
};

// "postgresql://..." as the settings say, or the file.
std::string queue_of(const Settings& settings, const std::filesystem::path& root);

// Returns when `stop` is set: what is under way is ended and stays in the queue. A queue in a file is for one program
// at a time: throws TemporaryError if another has it.
void run_service(const ServiceOptions& options, const CancelFlag& stop);

}  // namespace varve::webhook
