#pragma once
// For tests: an image of made-up wheels, its inventory, and sessions that used some of it.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "analyzer/packages/inventory.h"
#include "analyzer/usage/snapshot.h"
#include "testing/memory_source.h"

namespace varve::prune::test {

inline const std::string kSite = "usr/local/lib/python3.11/site-packages";

struct FakeWheel {
  std::string name;
  std::string metadata = {};                      // further lines
  std::map<std::string, std::string> files = {};  // relative to the site folder; "" = one module of the same name
  std::string entry_points = {};
};

class FakeImage {
 public:
  FakeImage() {
    files.add("usr/local/bin/python3.11", "ELF")
        .link("usr/local/bin/python3", "python3.11")
        .add("usr/local/lib/python3.11/os.py", "#");
    files.add("usr/local/include/python3.11/patchlevel.h", "#define PY_VERSION \"3.11.9\"\n").folder(kSite);
    files.facts_.environment["PATH"] = "/usr/local/bin:/usr/bin";
  }

  FakeImage& add(FakeWheel wheel) {
    if (wheel.files.empty()) {
      auto module = wheel.name;
      for (auto& c : module) c = c == '-' ? '_' : c;
      wheel.files[module + "/__init__.py"] = "# " + wheel.name;
    }
    const auto info = wheel.name + "-1.0.dist-info";
    std::string record;
    for (const auto& [path, content] : wheel.files) {
      record += fmt::format("{},,{}\n", path, content.size());
      auto folder = kSite;
      std::string_view rest = path;
      for (; rest.starts_with("../"); rest.remove_prefix(3)) folder = folder.substr(0, folder.rfind('/'));
      files.add(folder + "/" + std::string(rest), content);
    }
    files.add(kSite + "/" + info + "/METADATA",
              fmt::format("Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n{}\n", wheel.name, wheel.metadata));
    if (!wheel.entry_points.empty()) files.add(kSite + "/" + info + "/entry_points.txt", wheel.entry_points);
    files.add(kSite + "/" + info + "/RECORD", record + info + "/METADATA,,\n" + info + "/RECORD,,\n");
    return *this;
  }

  varve::test::MemorySource files;
};

// What `sessions` heard sessions of the image say: nothing yet.
inline usage::Snapshot snapshot_of(const packages::Inventory& inventory, std::uint64_t sessions) {
  usage::Snapshot snapshot;
  snapshot.window = {.first = 20689, .last = 20778};
  usage::ImageFacts image;
  image.digest = digest_of("image");
  image.has_inventory = true;
  image.launched = image.heard = sessions;
  snapshot.images.push_back(image);
  std::map<std::string, usage::DistributionUse> uses;
  for (const auto& one : inventory.distributions) {
    auto& use = uses[one.normalized];
    use.name = one.normalized;
    usage::PackageFacts package;
    package.image = image.digest;
    package.version = one.version;
    package.source = source_name(one.source);
    package.imports = one.imports;
    use.packages.push_back(package);
  }
  for (auto& [name, use] : uses) snapshot.distributions.push_back(std::move(use));
  return snapshot;
}

inline usage::DistributionUse& use_of(usage::Snapshot& snapshot, const std::string& name) {
  for (auto& use : snapshot.distributions) {
    if (use.name == name) return use;
  }
  throw std::runtime_error("no distribution " + name);
}

inline void used(usage::Snapshot& snapshot, const std::string& name, std::uint64_t sessions, std::uint64_t users) {
  auto& use = use_of(snapshot, name);
  use.sessions = use.direct = sessions;
  use.users = {.at_least = users, .at_most = users};
}

}  // namespace varve::prune::test
