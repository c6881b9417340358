#pragma once
// Connections that no exchange uses, for the next one to the same place: to make one costs a round trip, or three with
// TLS.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <curl/curl.h>

#include "core/base/free_with.h"
#include "core/base/threads/guarded.h"
#include "core/oci/internal/file_stamp.h"

namespace varve::oci::internal {

// An easy handle in a multi handle of its own: the latter keeps the connection, and lets us watch the time.
struct HttpConnection {
  std::unique_ptr<CURLM, FreeWith<::curl_multi_cleanup>> multi{::curl_multi_init()};
  std::unique_ptr<CURL, FreeWith<::curl_easy_cleanup>> easy{::curl_easy_init()};
  std::string origin;              // "https://host:port", of its last exchange
  std::vector<FileStamp> trusted;  // SystemAuthorities::stamps() when it was made; of TLS alone
  std::chrono::steady_clock::time_point idle_since;
};

// Of clients that trust the same authorities and show the same certificate. Safe to use from any thread.
class IdleConnections {
 public:
  // Null if there is none. The one used last has the warmest window and is the least likely to have been closed by the
  // server. Those that were made when something else was trusted are closed.
  std::unique_ptr<HttpConnection> take(std::string_view origin, const std::vector<FileStamp>& trusted);
  // The one that has been idle for longest goes where there are too many.
  void put(std::unique_ptr<HttpConnection> connection);
  // That a server has hardly closed yet.
  std::size_t count_fresh(std::string_view origin);

 private:
  Guarded<std::vector<std::unique_ptr<HttpConnection>>> idle_;  // the last used last
};

}  // namespace varve::oci::internal
