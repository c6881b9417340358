#pragma once
// What the commands of `varve profile` have in common.
#include <iosfwd>

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "indexer/packs/file_places.h"
#include "indexer/packs/pack_writer.h"

namespace varve::cli {

void add_profile_learn(CLI::App& profile, Context& context);

// A start-up pack for JSON; layers by place in the image.
nlohmann::json group_json(const index::StartGroup& group, const indexer::FilePlaces& places);
// Of these, as a table.
void print_groups(std::ostream& out, const nlohmann::json& groups);

}  // namespace varve::cli
