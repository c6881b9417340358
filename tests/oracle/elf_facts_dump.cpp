// Prints what ElfFactsReader says of files, a JSON object a line, for comparison with readelf. Paths come on stdin, one
// a line. Content is fed in pieces of 512 KiB, as batches of a layer are.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/index/elf/elf_facts.h"

int main() {
  using namespace varve;
  index::ElfFactsReader reader;
  Bytes buffer(512 * 1024);
  for (std::string path; std::getline(std::cin, path);) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) {
      std::cerr << path << ": cannot be read\n";
      return 1;
    }
    reader.begin(std::uint64_t(status.st_size));
    for (ssize_t got = 0; (got = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
      reader.feed(ByteView(buffer).first(std::size_t(got)));
    nlohmann::json line = {{"path", path}};
    if (const auto facts = reader.finish()) {
      line.update({{"type", facts->type},
                   {"machine", facts->machine},
                   {"is_64", facts->is_64},
                   {"interpreter", facts->interpreter},
                   {"soname", facts->soname},
                   {"rpath", facts->rpath},
                   {"runpath", facts->runpath},
                   {"needed", facts->needed},
                   {"device_code", facts->device_code},
                   {"broken", facts->broken}});
    }
    std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
}
