#include "tests/run/tiny_root.h"

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/errors.h"
#include "fuse/mount/user_ids.h"

namespace varve::test {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) fail_errno("run {}", command);
  std::string text;
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
  ::pclose(pipe);
  return text;
}

void copy_in(const fs::path& root, const fs::path& file) {
  const auto target = root / file.relative_path();
  fs::create_directories(target.parent_path());
  if (!fs::exists(target)) fs::copy_file(fs::canonical(file), target);
}

}  // namespace

void make_tiny_root(const fs::path& root) {
  fs::create_directories(root / "bin");
  for (const auto* name : {"sh", "cat", "chmod", "chown", "id", "ls", "mkdir", "mknod", "rm", "sleep", "touch", "tty",
                           "stty", "hostname"}) {
    const auto program = fuse::find_program(name);
    if (program.empty()) fail<NotFound>("this machine has no {}", name);
    add_program(root, program, fs::path("bin") / name);
  }
  fs::create_directories(root / "etc");
  fs::create_directories(root / "tmp");
  fs::create_directories(root / "home/nb");
  fs::permissions(root / "tmp", fs::perms::all | fs::perms::sticky_bit);
  std::ofstream(root / "etc/passwd") << "root:x:0:0:root:/root:/bin/sh\nnb:x:1000:100:nb:/home/nb:/bin/sh\n";
  std::ofstream(root / "etc/group") << "root:x:0:\nusers:x:100:\nvideo:x:44:nb\n";
  std::ofstream(root / "etc/shared") << "of the image\n";
}

void add_program(const fs::path& root, const fs::path& program, const fs::path& name) {
  fs::copy_file(fs::canonical(program), root / name, fs::copy_options::overwrite_existing);
  std::istringstream libraries(output_of("ldd " + fs::canonical(program).string() + " 2>/dev/null"));
  for (std::string word; libraries >> word;)
    if (word.starts_with('/')) copy_in(root, word);
}

}  // namespace varve::test
