#include "analyzer/notebooks/scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "analyzer/notebooks/folder_walk.h"
#include "analyzer/notebooks/local_modules.h"
#include "analyzer/notebooks/source_file.h"
#include "core/base/files/file.h"
#include "core/base/text/image_path.h"
#include "core/base/text/safe_text.h"
#include "core/base/threads/ordered_pool.h"
#include "core/base/threads/parallel.h"
#include "core/codec/archive_reader.h"

namespace varve::notebooks {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = 256 << 10;
constexpr std::size_t kSmallEntryBytes =
    1 << 20;  // entries of archives up to this size are read by the workers, larger ones as they stream by

// One file to read. Entries of archives come with their bytes.
struct Work {
  FoundFile found;
  std::string shown;                                 // its path, as results name it
  std::string bytes;                                 // of an archive's entry
  std::shared_ptr<const ArchiveModules> neighbours;  // of an archive's entry
  std::string folder;                                // of an archive's entry, inside it
};

SourceOutcome outcome_of_problem(std::string path, std::string what) {
  SourceOutcome outcome;
  outcome.file.path = std::move(path);
  outcome.problems.push_back(single_line(what));
  return outcome;
}

// What failed, without the path: results name it themselves.
std::string reason_of(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr ? system->code().message() : error.what();
}

class ScanWorker {
 public:
  ScanWorker(const ScanOptions& options, const CancelFlag& cancel) : cancel_(cancel), reader_(options) {}

  SourceOutcome operator()(Work&& work) {
    try {
      return work.neighbours != nullptr ? read_entry(work) : read_file(work);
    } catch (const Cancelled&) {
      throw;
    } catch (const std::bad_alloc&) {
      return outcome_of_problem(std::move(work.shown), "not enough memory to read it");
    } catch (const std::exception& error) {
      return outcome_of_problem(std::move(work.shown), reason_of(error));
    }
  }

 private:
  SourceOutcome read_file(const Work& work) {
    const auto& path = work.found.path;
    // O_NONBLOCK: a FIFO that took the file's place must not hold us.
    const auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) fail_errno("stat {}", path.string());
    if (!S_ISREG(status.st_mode)) fail<Unsupported>("not a regular file any more");
    reader_.start(work.found.kind, work.shown);
    bool wanted = reader_.has_room(std::uint64_t(status.st_size));
    while (wanted) {
      cancel_.throw_if_cancelled();
      const auto got = ::read(fd.get(), block_.get(), kBlockBytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("read {}", path.string());
      wanted = got != 0 && reader_.feed({block_.get(), std::size_t(got)});
    }
    const auto folder = path.parent_path();
    return reader_.finish([&](std::string_view name) { return modules_.find(folder, work.found.root, name); });
  }

  SourceOutcome read_entry(const Work& work) {
    cancel_.throw_if_cancelled();
    reader_.start(work.found.kind, work.shown);
    reader_.feed(work.bytes);
    return reader_.finish([&](std::string_view name) { return work.neighbours->find(work.folder, name); });
  }

  const CancelFlag& cancel_;
  SourceFileReader reader_;
  const std::unique_ptr<char[]> block_ = std::make_unique<char[]>(kBlockBytes);
  LocalModules modules_;
};

// Takes outcomes in order.
class Collector {
 public:
  Collector(ScanResult& result, const std::function<void(ScannedFile&&)>& each) : result_(result), each_(each) {}

  void take(SourceOutcome&& outcome) {
    result_.bytes += outcome.bytes;
    for (auto& problem : outcome.problems)
      result_.errors.push_back({.path = outcome.file.path, .what = std::move(problem)});
    if (!outcome.readable) return;
    auto& file = outcome.file;
    if (file.code_digest != Digest()) {
      const auto [first, is_first] = first_with_.try_emplace(file.code_digest, file.path);
      if (!is_first) file.duplicate_of = first->second;
    }
    each_ ? each_(std::move(file)) : result_.files.push_back(std::move(file));
  }

 private:
  ScanResult& result_;
  const std::function<void(ScannedFile&&)>& each_;
  std::unordered_map<Digest, std::string> first_with_;
};

// What the taker of outcomes threw: no error of the archive that is being read meanwhile.
struct Undelivered {
  std::exception_ptr why;
};

// Takes files, and gives their outcomes to the collector in the same order.
class Pipeline {
 public:
  Pipeline(unsigned threads, const ScanOptions& options, const CancelFlag& cancel, Collector& collector)
      : pool_(threads, threads * std::size_t(8) + 32,
              [&] {
                return [worker = std::make_shared<ScanWorker>(options, cancel)](Work&& work) {
                  return (*worker)(std::move(work));
                };
              }),
        deliver_([&collector](SourceOutcome&& outcome) {
          try {
            collector.take(std::move(outcome));
          } catch (...) {
            throw Undelivered{std::current_exception()};
          }
        }) {}

  void put(Work&& work) { pool_.add(std::move(work), deliver_); }
  void put_result(SourceOutcome&& outcome) { pool_.add_done(std::move(outcome), deliver_); }
  void finish() { pool_.drain(deliver_); }

 private:
  OrderedPool<Work, SourceOutcome> pool_;
  const std::function<void(SourceOutcome&&)> deliver_;
};

// One archive: the names first, for modules that lie beside the notebooks, then the content.
class ArchiveScan {
 public:
  ArchiveScan(const fs::path& path, const ScanOptions& options, const CancelFlag& cancel, Pipeline& pipeline)
      : path_(path), cancel_(cancel), pipeline_(pipeline), streaming_reader_(options) {}

  std::uint64_t run() {
    try {
      auto modules = std::make_shared<ArchiveModules>();
      collect_names(*modules);
      modules_ = std::move(modules);
      read_entries();
    } catch (const Error& error) {
      if (dynamic_cast<const Cancelled*>(&error) != nullptr) throw;
      pipeline_.put_result(outcome_of_problem(path_.string(), error.what()));
    } catch (const std::system_error& error) {
      pipeline_.put_result(outcome_of_problem(path_.string(), reason_of(error)));
    }
    return skipped_;
  }

 private:
  static bool is_passed_over_entry(std::string_view name) {
    for (std::size_t begin = 0; begin < name.size();) {
      const auto slash = std::min(name.find('/', begin), name.size());
      if (is_passed_over(name.substr(begin, slash - begin))) return true;
      begin = slash + 1;
    }
    return false;
  }

  void collect_names(ArchiveModules& modules) {
    auto archive = codec::ArchiveReader::open(path_);
    codec::ArchiveEntry entry;
    while (archive.next(entry)) {
      cancel_.throw_if_cancelled();
      if (entry.regular) modules.add(entry.name);
    }
  }

  void read_entries() {
    auto archive = codec::ArchiveReader::open(path_);
    codec::ArchiveEntry entry;
    while (archive.next(entry)) {
      cancel_.throw_if_cancelled();
      const auto kind = kind_of_name(name_of(entry.name));
      if (!entry.regular || kind == FileKind::kOther || kind == FileKind::kArchive ||
          is_passed_over_entry(entry.name)) {
        if (entry.regular) ++skipped_;
        continue;
      }
      auto shown = path_.string() + "!" + entry.name;
      if (entry.encrypted) {
        pipeline_.put_result(outcome_of_problem(std::move(shown), "encrypted"));
      } else {
        read_entry(archive, entry, kind, std::move(shown));
      }
    }
  }

  void read_entry(codec::ArchiveReader& archive, const codec::ArchiveEntry& entry, FileKind kind, std::string&& shown) {
    const std::string folder(parent_of(entry.name));
    Work work{.found = {.path = {}, .root = {}, .kind = kind},
              .shown = shown,
              .bytes = {},
              .neighbours = modules_,
              .folder = folder};
    bool streaming = false;
    std::string broken;
    try {
      archive.read([&](ByteView block) {
        cancel_.throw_if_cancelled();
        const std::string_view text(reinterpret_cast<const char*>(block.data()), block.size());
        if (streaming) return streaming_reader_.feed(text);
        work.bytes += text;
        if (work.bytes.size() <= kSmallEntryBytes) return true;
        streaming = true;
        streaming_reader_.start(kind, shown);
        return streaming_reader_.feed(std::exchange(work.bytes, {}));
      });
    } catch (const CorruptData& error) {
      broken = error.what();
    }
    if (streaming) {
      pipeline_.put_result(
          streaming_reader_.finish([&](std::string_view name) { return modules_->find(folder, name); }));
    } else {
      pipeline_.put(std::move(work));
    }
    if (!broken.empty()) pipeline_.put_result(outcome_of_problem(std::move(shown), std::move(broken)));
  }

  const fs::path& path_;
  const CancelFlag& cancel_;
  Pipeline& pipeline_;
  SourceFileReader streaming_reader_;
  std::shared_ptr<const ArchiveModules> modules_;
  std::uint64_t skipped_ = 0;
};

}  // namespace

ScanResult scan(const std::vector<fs::path>& paths, const ScanOptions& options, const CancelFlag& cancel,
                const std::function<void(ScannedFile&&)>& each) try {
  ScanResult result;
  Collector collector(result, each);
  const auto jobs = jobs_or_cores(options.jobs);
  std::uint64_t skipped_in_archives = 0;
  {
    Pipeline pipeline(jobs == 1 ? 0 : jobs, options, cancel, collector);  // a thread of its own costs memory
    const auto walked = walk(
        paths, cancel,
        [&](FoundFile&& found) {
          if (found.kind == FileKind::kArchive) {
            skipped_in_archives += ArchiveScan(found.path, options, cancel, pipeline).run();
            return;
          }
          Work work;
          work.shown = found.path.string();
          work.found = std::move(found);
          pipeline.put(std::move(work));
        },
        [&](const fs::path& path, std::string&& what) {
          pipeline.put_result(outcome_of_problem(path.string(), std::move(what)));
        });
    pipeline.finish();
    result.skipped = walked.skipped + skipped_in_archives;
  }
  const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
  std::stable_sort(result.files.begin(), result.files.end(), by_path);
  std::stable_sort(result.errors.begin(), result.errors.end(), by_path);
  return result;
} catch (const Undelivered& failure) {
  std::rethrow_exception(failure.why);
}

}  // namespace varve::notebooks
