#pragma once
#include "analyzer/notebooks/scan.h"
#include "analyzer/usage/internal/writer.h"

namespace varve::usage {

// The same path replaces what was known of it; in one transaction.
void store_scan(Writer& writer, const notebooks::ScanResult& scan);

}  // namespace varve::usage
