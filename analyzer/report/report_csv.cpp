#include <fmt/format.h>

#include <ostream>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::report {
namespace {

// RFC 4180. A field that a spreadsheet would take for a formula gets an apostrophe before it, as OWASP's "CSV
// Injection" advises.
std::string field(std::string_view raw) {
  constexpr std::size_t kMaxCharacters = 1000;
  auto text = visible(raw, kMaxCharacters);
  if (!text.empty() && std::string_view("=+-@").find(text.front()) != std::string_view::npos) text = "'" + text;
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string field(std::uint64_t number) { return std::to_string(number); }
std::string yes_or_no(bool yes) { return yes ? "yes" : "no"; }

template <typename Number>
std::string field(const std::optional<Number>& number) {
  return number ? fmt::format("{}", *number) : "";
}

constexpr std::string_view kHeading =
    "name,version,source,images,in_current_image,no_data,unused,sessions,exposed_sessions,share,bound,users_at_least,"
    "users_at_most,direct,transitive,named_only,files_only,"
    "image_copy,session_copy,file_sessions,exec_sessions,static_sessions,notebooks,notebooks_optional,last_30,last_90,"
    "last_365,trend,trend_word,"
    "first_used,last_used,bytes,compressed_bytes,could_go,system,needed_by,remarks";

}  // namespace

void write_csv(const Report& report, std::ostream& out, const TableOptions& options) {
  out << kHeading << "\r\n";
  for (const auto& row : report.rows) {
    if (!has_row(options, row)) continue;
    const auto& use = *row.use;
    // A count that nobody could make is empty.
    const auto seen = [&row](std::uint64_t count) { return row.no_data ? std::string() : field(count); };
    auto remarks = row.disagreements;
    if (row.no_data) remarks.push_back(row.no_data_reason);
    if (row.cuda) remarks.emplace_back("CUDA library: stays");
    const std::string fields[] = {field(use.name),
                                  field(row.package == nullptr ? "" : row.package->version),
                                  field(row.package == nullptr ? "" : row.package->source),
                                  field(std::uint64_t(use.packages.size())),
                                  yes_or_no(row.in_current > 0),
                                  yes_or_no(row.no_data),
                                  yes_or_no(row.unused),
                                  seen(row.sessions),
                                  field(row.exposed_sessions),
                                  field(row.share),
                                  field(row.bound),
                                  seen(use.users.at_least),
                                  seen(use.users.at_most),
                                  seen(use.direct),
                                  seen(use.transitive_only),
                                  seen(named_only(use)),
                                  seen(use.files_only),
                                  seen(use.image_copy),
                                  seen(use.session_copy),
                                  field(use.file_sessions),
                                  field(use.exec_sessions),
                                  field(use.static_sessions),
                                  field(use.notebooks),
                                  field(use.notebooks_optional),
                                  field(row.last_30),
                                  field(row.last_90),
                                  field(row.last_365),
                                  field(row.trend),
                                  field(trend_name(row.trend_kind)),
                                  field(last_seen_text(use.first_used)),
                                  field(last_seen_text(use.last_used)),
                                  field(row.bytes),
                                  field(row.compressed_bytes),
                                  yes_or_no(row.could_go),
                                  yes_or_no(row.system),
                                  field(joined(row.needed_by, "; ")),
                                  field(joined(remarks, "; "))};
    bool first = true;
    for (const auto& text : fields) {
      out << (first ? "" : ",") << text;
      first = false;
    }
    out << "\r\n";
  }
}

}  // namespace varve::report
