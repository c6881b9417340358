#pragma once
// What runs in an image before anybody imports anything, and what no package owns: .pth and .start files, kernels,
// configuration of the notebook server and of IPython, what the image starts, Python files that somebody put there.
// Read from their text; nothing is run. Formats: site.py and PEP 829, jupyter_client's "Kernel specs", jupyter_core's
// and traitlets' configuration files, execve(2)'s "#!" lines.
#include <string>
#include <vector>

#include "analyzer/prune/needs.h"
#include "analyzer/prune/nodes.h"
#include "core/index/file_source.h"
#include "core/oci/manifest.h"

namespace varve::prune {

struct StartNeeds {
  std::vector<Root> roots;  // "path-file" "kernel" "configured" "started" "unowned-file"
  std::vector<std::string> unsure;
};

// Of an image with this config. What cannot be read is a sentence in `unsure`. Throws what the source throws.
StartNeeds start_needs(const index::FileSource& files, const Nodes& nodes, const oci::ImageConfig& config);

}  // namespace varve::prune
