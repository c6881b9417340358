#pragma once
// What CPython reads as it starts, beside its program and the libraries of that, whatever it is to run: one small file
// after the other, each a round trip. Python/pylifecycle.c, Modules/getpath.py, Lib/site.py, Lib/encodings/__init__.py;
// of glibc setlocale(3), iconv_open(3) and tzset(3), which these call.
#include <string>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/import_table.h"

namespace varve::fuse {

// 11 of "python3.11", as the program of a version is named; 0 of other names, links ("python3") among them.
unsigned python_minor_of(std::string_view name);

// By a Python that lies in `folder` ("opt/venv/bin", below the tree's root), in order; of settings (.pth) 256 at most.
// Throws as ErofsReader.
std::vector<ImportTable::Imported> read_by_python(const index::ErofsReader& tree, const std::string& folder,
                                                  unsigned minor);

}  // namespace varve::fuse
