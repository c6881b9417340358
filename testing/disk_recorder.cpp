#include "testing/disk_recorder.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "core/base/errors.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;
using Kind = DiskStep::Kind;

constexpr std::size_t kSectorBytes = 512;

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

bool changes_names(Kind kind) {
  return kind == Kind::kName || kind == Kind::kUnname || kind == Kind::kRename || kind == Kind::kFolder;
}

}  // namespace

void DiskState::apply(const DiskStep& step) {
  switch (step.kind) {
    case Kind::kWrite: {
      auto& file = files[step.file];
      file.resize(std::max<std::size_t>(file.size(), step.offset + step.bytes.size()));
      std::ranges::copy(step.bytes, file.begin() + std::ptrdiff_t(step.offset));
      break;
    }
    case Kind::kResize:
      files[step.file].resize(step.offset);
      break;
    case Kind::kPunch: {
      auto& file = files[step.file];
      const auto from = std::min<std::size_t>(step.offset, file.size());
      const auto to = std::min<std::size_t>(step.offset + step.length, file.size());
      std::fill(file.begin() + std::ptrdiff_t(from), file.begin() + std::ptrdiff_t(to), std::byte{0});
      break;
    }
    case Kind::kName:
      names[step.path] = step.file;
      break;
    case Kind::kUnname:
      names.erase(step.path);
      folders.erase(step.path);
      break;
    case Kind::kRename: {
      const auto moved = [&](const std::string& path) { return step.new_path + path.substr(step.path.size()); };
      const auto is_moved = [&](const std::string& path) {
        return path == step.path || path.starts_with(step.path + "/");
      };
      for (auto at = names.begin(); at != names.end();) {
        if (!is_moved(at->first)) {
          ++at;
          continue;
        }
        const auto [path, file] = *at;
        at = names.erase(at);
        names[moved(path)] = file;
      }
      std::set<std::string> all;
      for (const auto& folder : folders) all.insert(is_moved(folder) ? moved(folder) : folder);
      folders = std::move(all);
      break;
    }
    case Kind::kFolder:
      folders.insert(step.path);
      break;
    case Kind::kSync:
      break;
  }
}

Digest DiskState::digest() const {
  Sha256 hash;
  for (const auto& folder : folders) hash.update(as_bytes(folder + "\n"));
  for (const auto& [path, file] : names) {
    const auto found = files.find(file);
    const auto content = found == files.end() ? ByteView() : ByteView(found->second);
    hash.update(as_bytes(fmt::format("{} {} ", path, content.size())));
    hash.update(content);
  }
  return hash.finish();
}

void DiskState::write_to(const fs::path& folder) const {
  for (const auto& name : folders) fs::create_directories(folder / name);
  for (const auto& [path, file] : names) {
    fs::create_directories((folder / path).parent_path());
    const auto found = files.find(file);
    std::ofstream out(folder / path, std::ios::binary | std::ios::trunc);
    if (found != files.end() && !found->second.empty())
      out.write(reinterpret_cast<const char*>(found->second.data()), std::streamsize(found->second.size()));
    if (!out.flush()) fail<Error>("write {}: failed", (folder / path).string());
  }
}

// The crashes after `done` steps.
class DiskRecording::Crashes {
 public:
  Crashes(const DiskRecording& recording, std::size_t done) : recording_(recording), done_(done) {
    const auto& steps = recording.steps_;
    std::set<int> synced;
    std::set<std::string> synced_folders;
    bool names_are_safe = false;  // from here down: a later one is on disk, and they go in order
    safe_.assign(done, false);
    for (auto at = done; at-- > 0;) {
      const auto& step = steps[at];
      if (step.kind == Kind::kSync) {
        if (step.file >= 0)
          synced.insert(step.file);
        else
          synced_folders.insert(step.path);
      } else if (changes_names(step.kind)) {
        names_are_safe = names_are_safe || (step.file >= 0 && synced.contains(step.file)) ||
                         synced_folders.contains(parent_of(step.path)) ||
                         (step.kind == Kind::kRename && synced_folders.contains(parent_of(step.new_path)));
        safe_[at] = names_are_safe;
        if (!names_are_safe) names_.push_back(at);
      } else {
        safe_[at] = synced.contains(step.file);
        if (!safe_[at]) data_.push_back(at);
      }
    }
    std::ranges::reverse(data_);
    std::ranges::reverse(names_);
  }

  template <typename Visit>
  void for_each(bool pairs, const Visit& visit) {
    for (std::size_t lost_names = 0; lost_names <= names_.size(); ++lost_names) {
      lost_ = {names_.end() - std::ptrdiff_t(lost_names), names_.end()};
      const auto names = lost_names == 0 ? std::string() : fmt::format("the last {} changes of names, ", lost_names);
      lose(data_, names + "all that was not synced", visit);
      lose({}, names + "nothing else", visit);
      for (std::size_t i = 0; i < data_.size(); ++i) {
        lose({data_[i]}, fmt::format("{}step {}", names, data_[i]), visit);
        auto others = data_;
        others.erase(others.begin() + std::ptrdiff_t(i));
        lose(others, fmt::format("{}all but step {}", names, data_[i]), visit);
        for (std::size_t j = i + 1; j < data_.size() && pairs; ++j)
          lose({data_[i], data_[j]}, fmt::format("{}steps {} and {}", names, data_[i], data_[j]), visit);
        if (recording_.steps_[data_[i]].bytes.size() > kSectorBytes) tear(data_[i], names, visit);
      }
    }
  }

 private:
  template <typename Visit>
  void lose(const std::vector<std::size_t>& data, const std::string& story, const Visit& visit,
            std::optional<std::pair<std::size_t, DiskStep>> instead = std::nullopt) {
    auto disk = recording_.before_;
    for (std::size_t at = 0; at < done_; ++at) {
      if (std::ranges::find(lost_, at) != lost_.end() || std::ranges::find(data, at) != data.end()) continue;
      disk.apply(instead && instead->first == at ? instead->second : recording_.steps_[at]);
    }
    visit(disk, story);
  }

  // A write of which the disk has the first sector only, or all but the last: in its place, or as the rest of it.
  template <typename Visit>
  void tear(std::size_t at, const std::string& names, const Visit& visit) {
    const auto& whole = recording_.steps_[at];
    for (const bool first_only : {true, false}) {
      auto torn = whole;
      const auto sectors = (whole.bytes.size() - 1) / kSectorBytes;
      torn.bytes.resize(first_only ? kSectorBytes : sectors * kSectorBytes);
      lose({}, fmt::format("{}step {} but {} bytes", names, at, torn.bytes.size()), visit, std::pair(at, torn));
    }
    auto tail = whole;
    tail.offset += kSectorBytes;
    tail.bytes.erase(tail.bytes.begin(), tail.bytes.begin() + std::ptrdiff_t(kSectorBytes));
    lose({}, fmt::format("{}the first sector of step {}", names, at), visit, std::pair(at, tail));
  }

  const DiskRecording& recording_;
  const std::size_t done_;
  std::vector<bool> safe_;
  std::vector<std::size_t> data_;   // steps that may be lost, each for itself
  std::vector<std::size_t> names_;  // the last of which may be lost
  std::vector<std::size_t> lost_;
};

void DiskRecording::for_each_crash(const std::function<void(const Crash&)>& visit, const Choice& choice) const {
  // A disk that several steps may leave is looked at for the last of them, to which most was promised.
  std::map<Digest, std::size_t> last;
  for (std::size_t done = 0; done <= steps_.size(); ++done)
    Crashes(*this, done).for_each(choice.pairs, [&](const DiskState& disk, const std::string&) {
      last[disk.digest()] = done;
    });
  const auto one_in = std::max<std::size_t>(1, (last.size() + choice.at_most - 1) / choice.at_most);
  for (std::size_t done = 0; done <= steps_.size(); ++done) {
    Crashes(*this, done).for_each(choice.pairs, [&](const DiskState& disk, const std::string& story) {
      const auto digest = disk.digest();
      const auto found = last.find(digest);
      if (found == last.end() || found->second != done) return;
      last.erase(found);
      if (load_le<std::uint64_t>(digest.raw().data()) % one_in == 0)
        visit({.steps = done, .power_failed = true, .disk = disk, .story = "lost: " + story});
    });
    auto disk = before_;
    for (std::size_t at = 0; at < done; ++at) disk.apply(steps_[at]);
    visit({.steps = done, .power_failed = false, .disk = disk, .story = "the process died"});
  }
}

}  // namespace varve::test
