// Parses requests and formats responses of HTTP/1.1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <danling/telemetry/loopback_server.hpp>

namespace danling::inline v0::detail {

/// The head of a request, or status and reason of a refusal.
struct ParsedRequest {
  HttpRequest request;
  bool head_only = false;
  int refusal = 0;  ///< 0: none
  std::string reason;
};

/// Parses the lines up to the empty line, which `head` may contain. `port` is the server's port, to check the Host.
ParsedRequest parse_request(std::string_view head, std::uint16_t port);

/// Returns the status line, the header fields and the empty line; omits fields that contain line feeds.
std::string response_head(const HttpResponse& response);

}  // namespace danling::inline v0::detail
