#pragma once
// The table [trust] of varve.toml. Its keys: docs/guide/trust.md.
#include <string>

#include "core/base/text/toml.h"
#include "core/trust/judge.h"

namespace varve::trust {

// Reads one file's table into `settings`: what it says replaces what a weaker file said, but for `deny`, which adds up.
// Key files are named from the folder of the file if they are not absolute; they are not read here. Throws CorruptData
// naming file and line.
void read_trust_settings(const TomlValue& table, const std::string& file, TrustSettings& settings);

}  // namespace varve::trust
