#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {

std::string_view import_kind_name(ImportKind kind) {
  switch (kind) {
    case ImportKind::kImport:
      return "import";
    case ImportKind::kOptional:
      return "optional";
    case ImportKind::kDynamic:
      return "dynamic";
    case ImportKind::kMagic:
      return "magic";
    case ImportKind::kShell:
      return "shell";
  }
  return "import";
}

}  // namespace varve::notebooks
