#pragma once
// Sessions for the gates: each is a `varve run` of this very program, since a session must begin in a process of one
// thread.
#include <map>

#include "analyzer/prune/apply/gates.h"
#include "cli/command.h"

namespace varve::cli {

// The options of this program that another one of it needs to find the same images, below that root.
std::vector<std::string> place_words(const Context& context, const std::filesystem::path& root);
// The first words of a `varve run` that keeps nothing, has no network, no recorder and no entrypoint, with the options
// above. What devices it has and everything behind is the caller's.
std::vector<std::string> session_words(const Context& context, const std::filesystem::path& root);

// Without network, GPUs, recorder and entrypoint, as the image's own user; nothing of them stays. Context must outlive
// it.
class ChildSessions final : public prune::SessionRunner {
 public:
  explicit ChildSessions(const Context& context) : context_(context) {}
  // How `run` finds an image that it knows by digest only. Before the first run().
  void add(const Digest& image, const std::string& reference) { references_[image] = reference; }
  // Images that nobody has added lie there.
  void add_place(const std::string& reference) { place_ = reference; }

  // Throws CouldNotRun with Varve's own message if it failed before the command (status 125), Cancelled.
  prune::ProgramResult run(const Digest& image, const std::vector<std::string>& command,
                           std::string_view standard_input, std::chrono::seconds limit) override;

 private:
  // Throws CouldNotRun for an image that is nowhere.
  std::string reference_of(const Digest& image) const;
  std::vector<std::string> words(const std::string& reference, const std::vector<std::string>& command) const;

  const Context& context_;
  std::map<Digest, std::string> references_;
  std::string place_;
};

}  // namespace varve::cli
