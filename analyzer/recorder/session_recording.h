#pragma once
// What makes a session one that is recorded: a spool folder of its own, the recorder in the image's Pythons, and the
// session's own records (start, launch, files of the image that were opened). It runs nothing: who runs the session
// hands it what needs() names, and says when its command has started. docs/guide/sessions.md, "--record".
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/recorder/install.h"
#include "analyzer/usage/spool_writer.h"
#include "core/base/digest.h"

namespace varve::recorder {

// The image's tree as the session will see it. Paths without leading "/", links followed inside the tree.
struct ImageTree {
  ListFolder list;
  std::function<bool(const std::string& path)> has;
};

// Not shared between threads.
class SessionRecording {
 public:
  struct Wanted {
    std::filesystem::path spool;           // made if missing, 0711: sessions write to folders of their own in it
    std::filesystem::path salts;           // usage::user_hash()
    std::filesystem::path recorder;        // where the recorder's files are kept for mounting, made if missing
    Digest image;                          // of the manifest
    std::string version;                   // of this program
    std::vector<std::string> image_env;    // "NAME=value" of the image's config
    std::vector<std::string> session_env;  // that this session is given besides; the last of a name counts, and wins
    usage::Variable own_variable;          // the environment of this process, for what neither says
  };
  // Anything that the session is to see at `destination` (absolute, in the session).
  struct Mount {
    std::filesystem::path source;
    std::string destination;
    bool read_only = true;
    bool operator==(const Mount&) const = default;
  };
  struct Needs {
    std::vector<Mount> mounts;
    std::vector<std::string> env;  // to be added to session_env
  };

  // Makes the spool and the session's folder in it. Throws what keeps them from being made: then nothing can be
  // recorded.
  SessionRecording(Wanted wanted, const ImageTree& tree);
  // Of a session whose command never started nothing is left.
  ~SessionRecording();
  SessionRecording(const SessionRecording&) = delete;
  SessionRecording& operator=(const SessionRecording&) = delete;

  // False if somebody does not want to be recorded (usage::is_switched_off() of the session or of this process, or
  // kSwitchFile in the image): the launch is counted, nothing else may be.
  bool switched_on() const { return switched_on_; }
  // Of a session that is switched on. Writes the recorder's files where they are missing. Throws what `list` throws,
  // and std::system_error.
  Needs needs(const ImageTree& tree) const;

  // The command has started: the launch is written, and what was noted before. Failures are kept for failure().
  void started();
  // A file of the image that the session opened, or executed. False: no more are taken.
  bool note_file(const std::string& path, bool executed);
  // After a session that started, with what became of it. `saw_all_files`: note_file() was told of each one.
  void end(bool ok, bool saw_all_files);
  // Called as root of the session's user namespace: what its users wrote belongs to their subordinate ids, and could
  // not be read by the one who collects it. Throws std::system_error.
  std::function<void()> take_over() const;

  const std::string& session() const { return session_; }
  std::uint64_t files() const { return files_; }
  // Why records were lost; "" if none were.
  const std::string& failure() const { return writer_ ? writer_->failure() : failure_; }

 private:
  usage::Variable session_variable() const;
  bool write_file(usage::FileRecord file);

  Wanted wanted_;
  std::string session_ = usage::new_session_id();
  std::string user_;
  std::filesystem::path folder_;  // of this session's files
  bool switched_on_ = true;
  std::uint64_t files_ = 0;
  std::vector<usage::FileRecord> early_files_;  // told before started(), as its news takes another way
  bool lost_files_ = false;
  std::string failure_;                         // why there is no writer although the command has started
  std::unique_ptr<usage::SpoolWriter> writer_;  // once the command has started
};

}  // namespace varve::recorder
