#pragma once
// For tests: sessions in which the import program and the starting program of probes say what a test told them to.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/gates.h"
#include "core/base/text/strings.h"

namespace varve::prune::test {

class FakeSessions final : public SessionRunner {
 public:
  // What one image's things do; all that is not named here works and says nothing.
  struct Says {
    nlohmann::json imports = nlohmann::json::object();   // imported name -> members of its answer
    nlohmann::json programs = nlohmann::json::object();  // words, or the kernel.json -> the same
    std::string broken;                                  // not "": Python does not start, and says this
  };
  std::map<Digest, Says> of;
  unsigned count = 0;                                   // sessions so far
  Digest last;                                          // image of the last one
  std::map<Digest, std::vector<std::string>> imported;  // of one session in its order

  ProgramResult run(const Digest& image, const std::vector<std::string>& /*command*/, std::string_view input,
                    std::chrono::seconds /*limit*/) override {
    const std::lock_guard lock(mutex_);
    last = image;
    ++count;
    const auto& says = of[image];
    if (!says.broken.empty()) return {.exit_status = 127, .timed_out = false, .out = "", .err = says.broken};
    const auto orders = nlohmann::json::parse(input);
    std::string out;
    const auto say = [&](nlohmann::json answer, const nlohmann::json& told, const std::string& what) {
      answer.update(told.value(what, nlohmann::json::object()));
      out += answer.dump() + "\n";
    };
    if (orders.contains("tasks")) {
      for (std::size_t i = 0; i < orders["tasks"].size(); ++i)
        for (const std::string name : orders["tasks"][i]["names"]) {
          imported[image].push_back(name);
          say({{"task", i}, {"name", name}, {"outcome", "ok"}, {"detail", ""}}, says.imports, name);
        }
    } else {
      for (std::size_t i = 0; i < orders["programs"].size(); ++i) {
        const auto& order = orders["programs"][i];
        const auto what = order.contains("kernel") ? std::string(order["kernel"])
                                                   : joined(order["words"].get<std::vector<std::string>>(), " ");
        say({{"program", i}, {"outcome", "exit 0"}, {"out", ""}, {"err", ""}, {"files", nlohmann::json::array()}},
            says.programs, what);
      }
    }
    return {.exit_status = 0, .timed_out = false, .out = out + "{\"done\":true}\n", .err = ""};
  }

 private:
  std::mutex mutex_;
};

}  // namespace varve::prune::test
