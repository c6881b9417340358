#pragma once
// Starts programs of an image, each for itself, in one session: python/start_programs.py, run by the image's Python.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/prune/apply/gates.h"

namespace varve::prune {

struct ProgramOrder {
  std::vector<std::string> words;  // absolute program first, or one that the image's PATH has
  std::string kernel_spec;         // absolute path of a kernel.json: that kernel is started and asked, `words` is not
  bool spy = false;                // which files Python opens in it is told, too
  bool until_output = false;       // it need not end: it is killed a moment after its first words
};

struct ProgramAnswer {
  // "exit 0", "signal 11", "time limit", "no start"; of one that need not end also "ok" (it spoke) and "runs". Of a
  // kernel that of its starter, whose `out` says how the kernel did (read_kernel_reply).
  std::string outcome;
  std::string out, err;            // their beginnings
  std::vector<std::string> files;  // absolute; opened by Python, of the standard library and of records none
};

struct StartOptions {
  unsigned jobs = 0;               // programs at the same time; 0 = as many as cores
  std::chrono::seconds limit{60};  // of one program
};

// One for each order, in their order. Throws CouldNotRun if the session or its Python did not do its work, and what
// the runner throws.
std::vector<ProgramAnswer> start_in_session(SessionRunner& sessions, const Digest& image, const std::string& python,
                                            const std::vector<ProgramOrder>& programs, const StartOptions& options);

// What the program printed, for so many orders. The image has a hand in it, so nothing is believed. Throws CorruptData
// naming the line.
std::vector<ProgramAnswer> parse_program_answers(std::string_view lines, std::size_t programs);

// A command of the image that starts one kernel, asks it who it is and ends, which takes up to the limit and somewhat
// more; its output is for read_kernel_reply(). `python`: its executable, a path of the image.
std::vector<std::string> kernel_start_words(const std::string& python, const std::string& kernel_spec,
                                            std::chrono::seconds limit);

// What python/start_kernel.py says of a kernel.
struct KernelReply {
  std::string outcome;  // "ok", "runs" (it stays, and nobody could ask), "no reply", "no start", "exit 1", "signal 11"
  std::string detail;
};
// One that says nothing that can be read gave no reply.
KernelReply read_kernel_reply(const ProgramAnswer& answer);

}  // namespace varve::prune
