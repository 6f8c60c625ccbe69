// LoopbackServer: a small HTTP server for clients on this machine: live pages, and metrics for scrapers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace danling::inline v0 {

/// A GET request.
struct HttpRequest {
  std::string path;         ///< as sent, without the query: `/data.json`
  std::string query;        ///< after the `?`; empty without one
  std::string accept = {};  ///< the Accept header; empty without one
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  /// Shared, so that several clients can receive one large text. Null: empty.
  std::shared_ptr<const std::string> body = {};
  /// Additional header fields, such as Content-Security-Policy.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct LoopbackServerOptions {
  /// 0: the kernel chooses a free port.
  std::uint16_t port = 0;
  /// A further client closes the connection that was idle for longest.
  std::size_t max_clients = 64;
  /// Limit for receiving a whole request, and for a client that reads no bytes of its response.
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
};

/// Serves GET and HEAD on 127.0.0.1 by HTTP/1.1 in a separate thread; one response per connection. A slow client does
/// not block others and is dropped after the timeout. Refuses requests whose Host is not this machine, so that a web
/// page of another site cannot read responses through a name that resolves to 127.0.0.1.
class LoopbackServer {
 public:
  /// Called in the server's thread, one request at a time; all clients wait for it. An exception becomes status 500.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  /// @throws Error if the port is in use
  LoopbackServer(LoopbackServerOptions options, Handler handler);
  /// Closes all connections and ends the thread.
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  std::uint16_t port() const;
  /// `http://127.0.0.1:8080/`
  std::string url() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace danling::inline v0
