#include <danling/telemetry/loopback_server.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <danling/core/error.hpp>

#include <support/error.hpp>

// Compiled as one unit with the other tests.
namespace danling_test::loopback_server_cases {
namespace {

using danling::HttpRequest;
using danling::HttpResponse;
using danling::LoopbackServer;
using danling::detail::concat;

class Connection {
 public:
  explicit Connection(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(const std::string& text) const {
    REQUIRE(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  /// Up to the end of the connection.
  std::string receive() const {
    std::string out;
    char block[4096];
    for (ssize_t got = 0; (got = recv(socket_, block, sizeof block, 0)) > 0;) {
      out.append(block, static_cast<std::size_t>(got));
    }
    return out;
  }

 private:
  int socket_;
};

std::string get(const LoopbackServer& server, const std::string& target, const std::string& method = "GET",
                std::string host = "") {
  const Connection connection(server.port());
  host = host.empty() ? concat("127.0.0.1:", server.port()) : host;
  connection.send(concat(method, " ", target, " HTTP/1.1\r\nHost: ", host, "\r\nAccept: */*\r\n\r\n"));
  return connection.receive();
}

HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/throws") {
    throw std::runtime_error("no such page");
  }
  if (request.path == "/large") {
    return {.body = std::make_shared<const std::string>(std::size_t{8} << 20U, 'x')};
  }
  return {.body = std::make_shared<const std::string>(concat(request.path, "|", request.query)),
          .headers = {{"X-Good", "yes"}, {"X-Bad", "a\r\nSet-Cookie: b"}}};
}

TEST_CASE("LoopbackServer: answers GET with status, length and body, and HEAD without the body",
          "[telemetry][server]") {
  const LoopbackServer server({}, echo);
  CHECK(server.url() == concat("http://127.0.0.1:", server.port(), "/"));
  const std::string answer = get(server, "/a/../b?c=d&e");
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n"));
  CHECK(answer.find("\r\nX-Good: yes\r\n") != std::string::npos);
  CHECK(answer.find("Set-Cookie") == std::string::npos);
  CHECK(answer.ends_with("\r\nConnection: close\r\n\r\n/a/../b|c=d&e"));
  const std::string head = get(server, "/ab", "HEAD");
  CHECK(head.find("Content-Length: 4\r\n") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK(get(server, "/x", "GET", concat("LocalHost:", server.port())).ends_with("/x|"));
}

TEST_CASE("LoopbackServer: refuses other hosts, methods and malformed requests by name", "[telemetry][server]") {
  const LoopbackServer server({}, echo);
  const std::string port = std::to_string(server.port());
  const auto answer = [&](const std::string& text) {
    const Connection connection(server.port());
    connection.send(text);
    return connection.receive();
  };
  const std::string foreign = get(server, "/", "GET", "attacker.example:" + port);
  CHECK(foreign.starts_with("HTTP/1.1 403 Forbidden\r\n"));
  CHECK(foreign.ends_with(concat("\r\n\r\nexpected Host 127.0.0.1:", port, " or localhost:", port,
                                 ", got 'attacker.example:", port, "'\n")));
  CHECK(get(server, "/", "GET", "127.0.0.1").starts_with("HTTP/1.1 403"));  // another port's
  CHECK(get(server, "/", "GET", "127.0.0.1.attacker.example:" + port).starts_with("HTTP/1.1 403"));
  CHECK(answer("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 403"));
  CHECK(answer("GET / HTTP/1.1\r\nHost: localhost:" + port + "\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 403"));
  const std::string post = get(server, "/", "POST");
  CHECK(post.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  CHECK(post.find("\r\nAllow: GET, HEAD\r\n") != std::string::npos);
  CHECK(get(server, "http://127.0.0.1/").starts_with("HTTP/1.1 400"));
  CHECK(answer("hello\r\n\r\n").starts_with("HTTP/1.1 400"));
  CHECK(answer("GET / HTTP/2\r\n\r\n").starts_with("HTTP/1.1 505"));
  CHECK(answer("GET /" + std::string(20000, 'a')).starts_with("HTTP/1.1 431"));
  const std::string thrown = get(server, "/throws");
  CHECK(thrown.starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
  CHECK(thrown.ends_with("\r\n\r\nno such page\n"));
}

TEST_CASE("LoopbackServer: slow and vanishing clients keep no one waiting", "[telemetry][server]") {
  const LoopbackServer server({.max_clients = 8}, echo);
  const std::string request = concat("GET /large HTTP/1.1\r\nHost: 127.0.0.1:", server.port(), "\r\n\r\n");
  const Connection silent(server.port());
  const Connection half(server.port());
  half.send("GET / HT");
  const Connection reads_nothing(server.port());
  reads_nothing.send(request);
  for (int i = 0; i < 20; ++i) {  // goes away in the middle of its response
    const Connection vanishes(server.port());
    vanishes.send(request);
  }
  CHECK(get(server, "/one").ends_with("/one|"));
  std::vector<std::unique_ptr<Connection>> crowd;  // more than it keeps
  for (int i = 0; i < 30; ++i) {
    crowd.push_back(std::make_unique<Connection>(server.port()));
  }
  CHECK(get(server, "/two").ends_with("/two|"));
  CHECK(get(server, "/large").size() > std::size_t{8} << 20U);
}

TEST_CASE("LoopbackServer: a client that sends nothing is dropped after the timeout", "[telemetry][server]") {
  const LoopbackServer server({.timeout = std::chrono::milliseconds(20)}, echo);
  const Connection silent(server.port());
  CHECK(silent.receive().empty());  // returns when the server closes
}

TEST_CASE("LoopbackServer: a port that is taken is one error, and its end frees the port", "[telemetry][server]") {
  std::uint16_t port = 0;
  {
    const LoopbackServer first({}, echo);
    port = first.port();
    CHECK(
        error_of<danling::Error>([&] { const LoopbackServer second({.port = port}, echo); }) ==
        concat(
            "[loopback_server.open] expected to listen on 127.0.0.1:", port,
            ", got 'Address already in use'; another process uses the port: choose another one, or 0 for a free port"));
    const Connection open(port);
    open.send("GET /");
  }
  const LoopbackServer again({.port = port}, echo);
  CHECK(get(again, "/").ends_with("/|"));
}

}  // namespace
}  // namespace danling_test::loopback_server_cases
