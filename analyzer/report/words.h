#pragma once
// The sentences that table, page and explanation share. Plain text: not escaped for any of them.
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/report/report.h"

namespace varve::report {

// The sentence that matters first: what nobody used and what it weighs.
std::string headline(const Report& report);
// Scope and coverage, then the headline.
std::vector<std::string> summary_sentences(const Report& report);
std::string unseen_text(const Report& report);    // " (3 more could not be seen)"; "" if all could
std::string scope_text(const Report& report);     // "v143 and 11 more images, 2025-11-22 to 2026-11-21 (365 days)"
std::string coverage_text(const Report& report);  // "We have heard of 62 % of sessions: 12,345 of 19,900 launched"
std::string coverage_text(const usage::ImageFacts& image);
// What the reader must know before trusting a zero: images without inventory, names kept back, records set aside.
std::vector<std::string> caution_sentences(const Report& report);
std::vector<std::string> gpu_sentences(const Report& report);

std::string users_text(usage::UserCount users);          // "120", "80-120"
std::string counted_users_text(usage::UserCount users);  // "1 user", "80–120 users"
std::string holder_text(const Row& row);  // why an unused row stays: "torch", "3 notebooks", "" = nothing holds it
std::string reinstall_text(const usage::Reinstall& reinstall);   // "1.26.4 -> 2.0.1 (upgrade)"
std::string place_text(std::uint32_t cell, std::uint32_t line);  // "cell 3, line 2"

// Broken at spaces into lines of at most 100 characters, each after `indent`.
void write_wrapped(std::ostream& out, std::string_view indent, std::string_view text);

}  // namespace varve::report
