#pragma once
// What `varve run --record` adds to a session: a spool folder of its own, the recorder in the image's Pythons, and the
// session's own records (start, launch, files of the image that were opened). Nothing here keeps a session from
// running. docs/guide/sessions.md, "--record".
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "analyzer/usage/spool_writer.h"
#include "core/base/digest.h"
#include "fuse/session/session.h"

namespace varve::cli {

class RunRecording {
 public:
  struct Wanted {
    std::filesystem::path spool;     // made if missing, 1733
    std::filesystem::path recorder;  // where the recorder's files are kept for mounting, made if missing
    Digest image;                    // of the manifest
    std::string version;             // of this program
    usage::Variable own_variable;    // the environment of this process
  };

  // Prepares `request`, whose image, lower and options are set. Null if nothing can be recorded: `warn` was told why,
  // once.
  static std::unique_ptr<RunRecording> begin(const Wanted& wanted, fuse::SessionRequest& request,
                                             const std::function<void(const std::string&)>& warn);

  // After the session, with what became of it.
  void end(const fuse::SessionResult& result);

  const std::string& session() const { return session_; }
  // False if somebody does not want to be recorded: the launch is counted, nothing else.
  bool switched_on() const { return switched_on_; }
  std::uint64_t files() const { return files_; }
  // Why records were lost; "" if none were.
  const std::string& failure() const { return writer_->failure(); }

 private:
  RunRecording() = default;
  void open_spool(const Wanted& wanted, const fuse::SessionRequest& request);
  void add_to(fuse::SessionRequest& request, const Wanted& wanted);

  std::string session_;
  std::string user_;
  std::filesystem::path folder_;  // of this session's files
  bool switched_on_ = true;
  std::uint64_t files_ = 0;
  std::unique_ptr<usage::SpoolWriter> writer_;
};

}  // namespace varve::cli
