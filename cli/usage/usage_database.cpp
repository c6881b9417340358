#include "cli/usage/usage_database.h"

#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

std::string known_images(const usage::Snapshot& snapshot) {
  constexpr std::size_t kNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(snapshot.images.size(), kNamed); ++i) {
    const auto& image = snapshot.images[i];
    text += (i == 0 ? "" : ", ") + (image.label.empty() ? image.digest.to_string() : printable(image.label));
  }
  if (snapshot.images.size() > kNamed) text += fmt::format(" and {} more", snapshot.images.size() - kNamed);
  return text.empty() ? "none" : text;
}

}  // namespace

std::unique_ptr<usage::Database> open_existing_database(const Context& context, const std::string& named) {
  constexpr std::string_view kSqlite = "sqlite:";
  const auto where = named.empty() ? (context.global.root / "usage.db").string() : named;
  const bool is_server = where.starts_with("postgresql://") || where.starts_with("postgres://");
  const auto path = where.starts_with(kSqlite) ? where.substr(kSqlite.size()) : where;
  if (!is_server && !std::filesystem::exists(path))
    fail<NotFound>("{}: there is no such usage database; `varve usage collect` makes one", path);
  return usage::open_database(where);
}

std::unique_ptr<usage::Database> open_or_make_database(const Context& context, const std::string& named) {
  if (!named.empty()) return usage::open_database(named);
  std::filesystem::create_directories(context.global.root);
  return usage::open_database((context.global.root / "usage.db").string());
}

Digest find_image(const Context& context, usage::Database& database, const std::string& image, usage::DayRange window) {
  const auto snapshot = database.snapshot({.window = window, .image = std::nullopt, .totals_only = true});
  for (const auto& known : snapshot.images) {
    if (known.label == image || known.digest.to_string() == image) return known.digest;
  }
  if (const auto digest = Digest::try_parse(image))
    fail<NotFound>("{}: the usage database does not know this image; it knows {}", image, known_images(snapshot));
  try {
    return context.open_image(image).digest();
  } catch (const std::exception& error) {
    fail<NotFound>(
        "{}: no image of the usage database has this label (it knows {}), nor is it a reference that could be opened: "
        "{}",
        image, known_images(snapshot), error.what());
  }
}

}  // namespace varve::cli
