#pragma once
// Probes of images in the database.
#include <optional>

#include "analyzer/usage/internal/writer.h"
#include "analyzer/usage/probe.h"

namespace varve::usage {

void store_probe(Writer& writer, const Probe& probe);
// Within a transaction. Absent if there is none of this image.
std::optional<Probe> read_probe(SqlConnection& sql, const Digest& image);

}  // namespace varve::usage
