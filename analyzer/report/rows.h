#pragma once
// How one distribution's evidence is judged: what its count is out of, what it is worth, and where its sources differ.
#include <string>
#include <unordered_map>
#include <vector>

#include "analyzer/report/report.h"

namespace varve::report {

// What all rows are judged against. The snapshot must outlive it.
class Scene {
 public:
  explicit Scene(const usage::Snapshot& snapshot);

  const usage::ImageFacts* image(const Digest& digest) const;
  std::size_t age(const Digest& digest) const;  // 0 = newest
  std::optional<std::size_t> current() const { return current_; }
  const usage::Snapshot& snapshot() const { return snapshot_; }
  bool files_are_seen() const { return files_are_seen_; }  // the mount's evidence is part of the snapshot
  bool is_known(const std::string& name) const;            // some known image has a distribution of this name

  // Heard sessions in the first and second half of the window; absent if they are not known by day.
  struct Halves {
    double first = 0, second = 0;
  };
  const std::optional<Halves>& heard() const { return heard_; }
  static Halves halves(const std::vector<usage::DayCount>& days, usage::DayRange window);

 private:
  const usage::Snapshot& snapshot_;
  std::unordered_map<Digest, std::size_t> images_;
  std::unordered_map<std::string, std::size_t> packaged_;
  std::optional<std::size_t> current_;
  std::optional<Halves> heard_;
  bool files_are_seen_ = false;
};

Row make_row(const Scene& scene, const usage::DistributionUse& use);

// Was it seen in any session, in any way?
bool seen_in_use(const usage::DistributionUse& use);

// Fills needed_by and could_go of the rows of the current image: what something needs that stays (used, named by a
// notebook, CUDA, the operating system's), directly or through others, on that image.
void find_holders(const Scene& scene, std::vector<Row>& rows);

std::vector<std::string> find_disagreements(const Scene& scene, const usage::DistributionUse& use, const Row& row);

}  // namespace varve::report
