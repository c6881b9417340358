#pragma once
// How the commands that read the usage database open it and find images in it.
#include <memory>
#include <string>

#include "analyzer/usage/database.h"
#include "cli/command.h"

namespace varve::cli {

// Opens a database that is there: reading creates none. "" is where `varve usage collect` keeps it by itself. Throws
// NotFound if the file is not there.
std::unique_ptr<usage::Database> open_existing_database(const Context& context, const std::string& where);

// The same for commands that write, which make it.
std::unique_ptr<usage::Database> open_or_make_database(const Context& context, const std::string& where);

// The image that people mean: a label or digest the database knows, else an image reference. Throws NotFound naming the
// images it knows.
Digest find_image(const Context& context, usage::Database& database, const std::string& image, usage::DayRange window);

}  // namespace varve::cli
