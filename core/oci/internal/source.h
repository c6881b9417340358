#pragma once
// One place that serves a repository, and how to speak to it.
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/oci/reference.h"

namespace varve::oci::internal {

// kHttpsIfSpoken: else HTTP. kHttpIfSpoken, of this machine's own: else HTTPS.
enum class Scheme { kHttps, kHttp, kHttpsIfSpoken, kHttpIfSpoken };

struct SourceCapabilities {
  bool pull = true;       // content by digest
  bool resolve = true;    // what a tag names
  bool referrers = true;  // what refers to a manifest
  bool operator==(const SourceCapabilities&) const = default;
};

struct Source {
  std::string host;        // with port, as references write it: whose credentials and certificates count
  std::string connect_to;  // with port, as it is connected to
  Scheme scheme = Scheme::kHttps;
  std::string root = "/v2";  // path of the API
  std::string repository;    // there: a mirror may keep it under another name
  bool is_mirror = false;    // else what the image's name names, though perhaps elsewhere
  std::string names_host;    // sent as ?ns=: the registry that is meant, to any host that is another; "" = none
  SourceCapabilities capabilities;

  std::vector<std::filesystem::path> authorities;                                 // PEM, besides the system's
  std::optional<std::pair<std::filesystem::path, std::filesystem::path>> client;  // certificate and key, PEM
  bool verify_tls = true;
  std::vector<std::string> headers;  // "Name: value", for this host alone
  std::optional<std::chrono::milliseconds> dial_timeout;

  // "cache.example:5000/team/app", for messages.
  std::string name() const { return host + "/" + repository; }
  bool operator==(const Source&) const = default;
};

// What the reference names, without any file of mirrors.
Source own_source(const Reference& reference, bool plain_http);
// True for localhost, 127.0.0.0/8 and [::1], with or without a port.
bool is_loopback_host(std::string_view host);

}  // namespace varve::oci::internal
