#pragma once
// What `varve run --record` adds to a session: the recording of analyzer/recorder, given to the session of
// fuse/session. Nothing here keeps a session from running. docs/guide/sessions.md, "--record".
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "analyzer/recorder/session_recording.h"
#include "fuse/session/session.h"

namespace varve::cli {

// Prepares `request`, whose image, lower and options are set; the environments of `wanted` are taken from it. The
// recording must outlive the session. Null if nothing can be recorded: `warn` was told why, once.
std::unique_ptr<recorder::SessionRecording> begin_recording(recorder::SessionRecording::Wanted wanted,
                                                            fuse::SessionRequest& request,
                                                            const std::function<void(const std::string&)>& warn);

// Where `varve run --record` writes if nothing else is said.
std::filesystem::path own_spool(const std::filesystem::path& root);

}  // namespace varve::cli
