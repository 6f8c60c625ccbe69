#include <telemetry/http_message.hpp>

#include <algorithm>
#include <array>
#include <cctype>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

std::string_view phrase_of(int status) {
  constexpr std::array<std::pair<int, std::string_view>, 9> known = {{{200, "OK"},
                                                                      {204, "No Content"},
                                                                      {400, "Bad Request"},
                                                                      {403, "Forbidden"},
                                                                      {404, "Not Found"},
                                                                      {405, "Method Not Allowed"},
                                                                      {431, "Request Header Fields Too Large"},
                                                                      {500, "Internal Server Error"},
                                                                      {505, "HTTP Version Not Supported"}}};
  const auto* found =
      std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.first == status; });
  return found == known.end() ? "Unknown" : found->second;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

bool is_this_machine(std::string_view host, std::uint16_t port) {
  const std::string suffix = concat(":", port);
  if (host.ends_with(suffix)) {
    host.remove_suffix(suffix.size());
  } else if (port != 80) {
    return false;
  }
  return host == "127.0.0.1" || host == "localhost";
}

ParsedRequest refused(int status, std::string reason) {
  ParsedRequest out;
  out.refusal = status;
  out.reason = std::move(reason);
  return out;
}

}  // namespace

ParsedRequest parse_request(std::string_view head, std::uint16_t port) {
  ParsedRequest out;
  const auto next_line = [&] {
    const auto end = head.find('\n');
    const auto line = trimmed(head.substr(0, end));
    head.remove_prefix(end == std::string_view::npos ? head.size() : end + 1);
    return line;
  };
  const std::string_view line = next_line();
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/")) {
    return refused(400, "expected an HTTP request");
  }
  if (!line.substr(last + 1).starts_with("HTTP/1.")) {
    return refused(505, "expected HTTP/1.1");
  }
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  std::string host;
  int hosts = 0;
  while (!head.empty()) {
    const std::string_view field = next_line();
    if (field.empty()) {
      break;
    }
    const auto colon = field.find(':');
    if (colon == std::string_view::npos) {
      return refused(400, "expected header fields as NAME: VALUE");
    }
    const std::string name = lower(field.substr(0, colon));
    if (name == "host") {
      host = lower(trimmed(field.substr(colon + 1)));
      ++hosts;
    } else if (name == "accept") {
      out.request.accept = trimmed(field.substr(colon + 1));
    }
  }
  if (hosts != 1 || !is_this_machine(host, port)) {
    return refused(403, concat("expected Host 127.0.0.1:", port, " or localhost:", port, ", got ",
                               hosts == 1 ? quote(host) : "none or several"));
  }
  if (method != "GET" && method != "HEAD") {
    return refused(405, "expected GET");
  }
  if (!target.starts_with('/')) {
    return refused(400, "expected a path that begins with /");
  }
  out.head_only = method == "HEAD";
  const auto mark = target.find('?');
  out.request.path = target.substr(0, mark);
  out.request.query = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  return out;
}

std::string response_head(const HttpResponse& response) {
  std::string out = concat("HTTP/1.1 ", response.status, " ", phrase_of(response.status), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    if (name.find_first_of("\r\n") == std::string_view::npos && value.find_first_of("\r\n") == std::string_view::npos) {
      out += concat(name, ": ", value, "\r\n");
    }
  };
  if (response.status != 204) {
    add("Content-Type", response.content_type);
    add("Content-Length", to_text(static_cast<std::uint64_t>(response.body ? response.body->size() : 0)));
  }
  if (response.status == 405) {
    add("Allow", "GET, HEAD");
  }
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("Cross-Origin-Resource-Policy", "same-origin");
  for (const auto& [name, value] : response.headers) {
    add(name, value);
  }
  add("Connection", "close");
  return out + "\r\n";
}

}  // namespace danling::inline v0::detail
