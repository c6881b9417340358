#include "core/http/http_server.h"

#include <microhttpd.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/free_with.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/http/peer.h"

namespace varve {
namespace {

constexpr std::size_t kMaxHeadBytes = 32 << 10;  // of a request, what the library remembers of it included

using Response = std::unique_ptr<MHD_Response, FreeWith<MHD_destroy_response>>;

// One request while it comes in.
struct Incoming {
  HttpRequest request;
  Stopwatch watch;
  bool is_new = true;
  bool is_answered = false;  // or being so
};

MHD_Result keep_header(void* into, MHD_ValueKind /*kind*/, const char* name, const char* value) {
  static_cast<HttpRequest*>(into)->headers.emplace(to_lower(name), value == nullptr ? "" : value);
  return MHD_YES;
}

MHD_Result send(MHD_Connection* connection, const HttpResponse& response) {
  const Response made(MHD_create_response_from_buffer(response.body.size(), const_cast<char*>(response.body.data()),
                                                      MHD_RESPMEM_MUST_COPY));
  if (!made) return MHD_NO;
  MHD_add_response_header(made.get(), MHD_HTTP_HEADER_CONTENT_TYPE, response.content_type.c_str());
  for (const auto& [name, value] : response.headers) MHD_add_response_header(made.get(), name.c_str(), value.c_str());
  return MHD_queue_response(connection, unsigned(response.status), made.get());
}

std::string peer_of_connection(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  return info == nullptr || info->client_addr == nullptr ? std::string() : peer_of(*info->client_addr);
}

}  // namespace

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

HttpResponse HttpResponse::text(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse HttpResponse::method_not_allowed(const std::string& allowed) {
  auto response = text(405, "only " + allowed + " is answered here\n");
  response.headers.emplace_back("Allow", allowed);
  return response;
}

struct HttpServer::Parts {
  Parts(const HttpServerOptions& wanted, Handler answer) : options(wanted), handler(std::move(answer)) {}

  static MHD_Result on_request(void* parts, MHD_Connection* connection, const char* url, const char* method,
                               const char* /*version*/, const char* upload, std::size_t* upload_bytes, void** state) {
    try {
      return static_cast<Parts*>(parts)->take(connection, url, method, upload, upload_bytes, state);
    } catch (const std::exception& error) {
      log::error("answer a request: {}", error.what());
      return MHD_NO;
    }
  }

  // Whether a connection is taken. The library's own limit knows no networks.
  static MHD_Result on_connect(void* parts, const sockaddr* address, socklen_t /*length*/) {
    try {
      return static_cast<Parts*>(parts)->has_room_for(peer_of(*address)) ? MHD_YES : MHD_NO;
    } catch (const std::exception& error) {
      log::error("take a connection: {}", error.what());
      return MHD_NO;
    }
  }

  static void on_connection(void* parts, MHD_Connection* connection, void** /*state*/,
                            MHD_ConnectionNotificationCode what) {
    try {
      static_cast<Parts*>(parts)->note_connection(peer_of_connection(connection),
                                                  what == MHD_CONNECTION_NOTIFY_STARTED);
    } catch (const std::exception& error) {
      log::error("count a connection: {}", error.what());
    }
  }

  static void on_end(void* parts, MHD_Connection* /*connection*/, void** state, MHD_RequestTerminationCode /*how*/) {
    // The library keeps it for us between the calls.
    const std::unique_ptr<Incoming> ended(static_cast<Incoming*>(std::exchange(*state, nullptr)));
    if (ended && ended->is_answered) static_cast<Parts*>(parts)->note_answered();
  }

  // Called when the head of a request is here, with each piece of its body, and when it is whole.
  MHD_Result take(MHD_Connection* connection, const char* url, const char* method, const char* upload,
                  std::size_t* upload_bytes, void** state) {
    if (*state == nullptr) *state = std::make_unique<Incoming>().release();
    auto& incoming = *static_cast<Incoming*>(*state);
    auto& request = incoming.request;
    if (std::exchange(incoming.is_new, false)) {
      request.method = method;
      request.path = url;
      request.peer = peer_of_connection(connection);
      MHD_get_connection_values(connection, MHD_HEADER_KIND, keep_header, &request);
      return too_large(request) ? send(connection, HttpResponse::text(413, "that is more than is taken here\n"))
                                : MHD_YES;
    }
    if (*upload_bytes > 0) {
      if (request.body.size() + *upload_bytes > options.max_body_bytes ||
          incoming.watch.seconds() > double(options.patience.count()))
        return MHD_NO;  // no answer may be given in mid-body
      request.body.append(upload, *upload_bytes);
      *upload_bytes = 0;
      return MHD_YES;
    }
    incoming.is_answered = true;
    {
      const std::lock_guard lock(mutex);
      ++answering;
    }
    return send(connection, answer(request));
  }

  bool too_large(const HttpRequest& request) const {
    const auto length = request.header("content-length");
    return length.size() > 18 ||
           (!length.empty() && std::strtoull(length.data(), nullptr, 10) > options.max_body_bytes);
  }

  HttpResponse answer(const HttpRequest& request) const {
    try {
      return handler(request);
    } catch (const TemporaryError& error) {
      log::warn("{} {}: {}", request.method, request.path, error.what());
      return HttpResponse::text(503, "not now; try again\n");
    } catch (const std::exception& error) {
      log::error("{} {}: {}", request.method, request.path, error.what());
      return HttpResponse::text(500, "that failed here; the log says why\n");
    }
  }

  bool has_room_for(const std::string& peer) {
    if (options.max_of_peer == 0 || peer.empty()) return true;
    const std::lock_guard lock(mutex);
    const auto found = connections.find(peer);
    return found == connections.end() || found->second < options.max_of_peer;
  }

  void note_connection(const std::string& peer, bool begins) {
    if (options.max_of_peer == 0 || peer.empty()) return;
    const std::lock_guard lock(mutex);
    const auto at = connections.try_emplace(peer, 0).first;
    at->second += begins ? 1 : at->second > 0 ? -1 : 0;
    if (at->second == 0) connections.erase(at);
  }

  void note_answered() {
    const std::lock_guard lock(mutex);
    --answering;
    all_answered.notify_all();
  }

  // Until each answer that was begun has gone out, or its client has had the time to take it.
  void wait_for_answers() {
    std::unique_lock lock(mutex);
    all_answered.wait_for(lock, options.patience, [&] { return answering == 0; });
  }

  const HttpServerOptions options;
  const Handler handler;
  std::mutex mutex;
  std::condition_variable all_answered;
  int answering = 0;
  std::map<std::string, unsigned> connections;  // by peer
  UniqueFd listener;
  std::unique_ptr<MHD_Daemon, FreeWith<MHD_stop_daemon>> daemon;  // ends before the rest
};

HttpServer::HttpServer(ListenAddress address, const HttpServerOptions& options, Handler handler)
    : address_(std::move(address)), parts_(std::make_unique<Parts>(options, std::move(handler))) {
  parts_->listener = listen_on(address_);
  const auto pool = [&] { return options.threads > 1 ? options.threads : 0; };
  parts_->daemon.reset(MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, &Parts::on_connect,
                                        parts_.get(), &Parts::on_request,
                                        parts_.get(),                                                       //
                                        MHD_OPTION_LISTEN_SOCKET, MHD_socket(parts_->listener.get()),       //
                                        MHD_OPTION_NOTIFY_COMPLETED, &Parts::on_end, parts_.get(),          //
                                        MHD_OPTION_NOTIFY_CONNECTION, &Parts::on_connection, parts_.get(),  //
                                        MHD_OPTION_CONNECTION_LIMIT, options.max_connections,               //
                                        MHD_OPTION_CONNECTION_TIMEOUT, unsigned(options.silence.count()),   //
                                        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxHeadBytes,                  //
                                        MHD_OPTION_THREAD_POOL_SIZE, pool(),                                //
                                        MHD_OPTION_END));
  if (!parts_->daemon) fail_errno("serve HTTP at {}", address_.to_string());
  parts_->listener.release();  // the library closes it, or gives it back
}

void HttpServer::stop() {
  if (!parts_->daemon) return;
  if (address_.is_unix()) ::unlink(address_.socket.c_str());
  // The library's own end drops what has not gone out yet.
  parts_->listener = UniqueFd(MHD_quiesce_daemon(parts_->daemon.get()));
  parts_->wait_for_answers();
  parts_->daemon.reset();
  parts_->listener.reset();
}

HttpServer::~HttpServer() { stop(); }

}  // namespace varve
