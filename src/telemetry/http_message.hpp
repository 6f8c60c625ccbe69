// Requests and responses of HTTP/1.1 as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <danling/telemetry/loopback_server.hpp>

namespace danling::inline v0::detail {

/// A request's head, or the status of the refusal and its reason.
struct ParsedRequest {
  HttpRequest request;
  bool head_only = false;
  int refusal = 0;  ///< 0: none
  std::string reason;
};

/// Parses the lines up to the empty one, which `head` may contain. `port`: that of the server, for the Host.
ParsedRequest parse_request(std::string_view head, std::uint16_t port);

/// The status line and the header fields, with the empty line. Fields with line feeds are left out.
std::string response_head(const HttpResponse& response);

}  // namespace danling::inline v0::detail
