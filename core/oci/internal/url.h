#pragma once
// The few things a client must know about a URL before it sends a secret there.
#include <optional>
#include <string>
#include <string_view>

namespace varve::oci::internal {

struct Url {
  std::string text;    // absolute, without fragment and without user and password
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; IPv6 in brackets
  std::string port;    // always set
  std::string path;    // without the query

  // Absolute http or https URLs only; absent otherwise. A user or password in it makes it absent too.
  static std::optional<Url> parse(std::string_view text);
  // What a Location or Link header means for a request that was sent to this URL.
  std::optional<Url> resolve(std::string_view reference) const;
  bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
  // For messages: signatures and tokens travel in queries, so they are left out.
  std::string shown() const { return scheme + "://" + host + (is_default_port() ? "" : ":" + port) + path; }

 private:
  bool is_default_port() const { return port == (scheme == "https" ? "443" : "80"); }
};

// Percent-encodes everything but unreserved characters.
std::string url_escape(std::string_view text);
// Value of one parameter of the query, decoded; absent if it is not there.
std::optional<std::string> query_parameter(const std::string& url, std::string_view name);
// Appends "name=value" with "?" or "&" as needed; the value is escaped.
std::string with_query(std::string url, std::string_view name, std::string_view value);

}  // namespace varve::oci::internal
