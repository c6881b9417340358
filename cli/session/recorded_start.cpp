#include "cli/session/recorded_start.h"

#include "cli/session/child_sessions.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"

namespace varve::cli {
namespace {

constexpr std::chrono::minutes kAround{5};  // for the mount before it, and the end of the session
constexpr std::size_t kMaxSaid = 1 << 20;

}  // namespace

RecordedStart record_start(const Context& context, const std::string& image, const std::vector<std::string>& command,
                           const DeviceOptions& devices, const std::filesystem::path& file,
                           std::chrono::seconds limit) {
  // Whatever goes through a set of names goes through it in the same order each time.
  ChildProgram program;
  program.words = {context.program, "profile",    "record",       "--quiet", "--seconds", std::to_string(limit.count()),
                   "--network",     "none",       "--entrypoint", "",        "--env",     "PYTHONHASHSEED=0",
                   "--output",      file.string()};
  const auto places = place_words(context, context.global.root);
  program.words.insert(program.words.end(), places.begin(), places.end());
  const auto device_words = words_of(devices);
  program.words.insert(program.words.end(), device_words.begin(), device_words.end());
  program.words.insert(program.words.end(), {image, "--"});
  program.words.insert(program.words.end(), command.begin(), command.end());
  program.limit = limit + kAround;
  program.max_output = kMaxSaid;
  auto child = run_child(program, context.cancel);
  RecordedStart start{
      .exit_status = child.exit_status, .out = std::move(child.out), .err = std::move(child.err), .profile = {}};
  if (const auto bytes = read_file_if_there(file, index::kMaxProfileBlobBytes))
    start.profile = index::Profile::decode(*bytes, file.string());
  return start;
}

}  // namespace varve::cli
