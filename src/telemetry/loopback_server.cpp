#include <danling/telemetry/loopback_server.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <list>
#include <thread>

#include <danling/core/error.hpp>

#include <telemetry/http_message.hpp>

namespace danling::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_head = 16384;

HttpResponse text_response(int status, std::string text) {
  return {.status = status, .body = std::make_shared<const std::string>(std::move(text) + "\n")};
}

}  // namespace

/// The server's thread, which handles all connections without blocking.
class LoopbackServer::Loop {
 public:
  Loop(LoopbackServerOptions options, Handler handler) : options_(options), handler_(std::move(handler)) {
    try {
      open();
    } catch (...) {
      close_all();
      throw;
    }
    // The program's threads handle signals.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      close_all();
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Loop() {
    ::close(wake_[1]);  // wakes poll()
    wake_[1] = -1;
    thread_.join();
    close_all();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::uint16_t port() const { return options_.port; }

 private:
  struct Client {
    int socket = -1;
    Clock::time_point deadline;
    std::string input;
    std::string head;                         ///< head of the response; empty while the request is read
    std::shared_ptr<const std::string> body;  ///< null: no body
    std::size_t sent = 0;                     ///< bytes sent of head and body
    bool draining = false;                    ///< the response is sent; waits for the client to close
  };

  void open() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(listener_, plain, size) != 0 || listen(listener_, 64) != 0 || getsockname(listener_, plain, &size) != 0) {
      const int reason = errno;
      fail("loopback_server.open", "expected to listen on 127.0.0.1:", options_.port, ", got ",
           quote(std::strerror(reason)),
           reason == EADDRINUSE ? "; another process uses the port: choose another one, or 0 for a free port" : "");
    }
    options_.port = ntohs(address.sin_port);
    if (pipe2(wake_.data(), O_CLOEXEC) != 0) {
      fail("loopback_server.open", "expected a pipe, got ", quote(std::strerror(errno)));
    }
  }

  void close_all() {
    for (const auto& client : clients_) {
      ::close(client.socket);
    }
    clients_.clear();
    for (int* file : {&listener_, wake_.data(), wake_.data() + 1}) {
      if (*file >= 0) {
        ::close(*file);
        *file = -1;
      }
    }
  }

  void run() {
    std::vector<pollfd> files;
    while (true) {
      const bool accepts = Clock::now() >= accepts_from_;
      files.assign({{wake_[0], POLLIN, 0}, {accepts ? listener_ : -1, POLLIN, 0}});
      auto wait = accepts ? std::chrono::milliseconds(60000) : std::chrono::milliseconds(1000);
      for (const auto& client : clients_) {
        files.push_back({client.socket, static_cast<short>(writing(client) ? POLLOUT : POLLIN), 0});
        wait = std::min(wait, std::chrono::duration_cast<std::chrono::milliseconds>(client.deadline - Clock::now()) +
                                  std::chrono::milliseconds(1));
      }
      if (poll(files.data(), files.size(), static_cast<int>(std::max<std::int64_t>(wait.count(), 0))) < 0) {
        continue;  // EINTR, or a temporary lack of memory
      }
      if (files[0].revents != 0) {
        return;
      }
      std::size_t i = 2;
      for (auto client = clients_.begin(); client != clients_.end(); ++i) {
        const bool open = (files[i].revents == 0 || serve(*client)) && Clock::now() < client->deadline;
        if (!open) {
          ::close(client->socket);
        }
        client = open ? std::next(client) : clients_.erase(client);
      }
      if (files[1].revents != 0) {
        accept_clients();
      }
    }
  }

  static bool writing(const Client& client) { return !client.head.empty() && !client.draining; }

  void accept_clients() {
    while (true) {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
          // No file descriptor is free. Pause accepting, since poll() would return immediately for the waiting
          // connection.
          accepts_from_ = Clock::now() + std::chrono::seconds(1);
        }
        return;
      }
      if (clients_.size() >= options_.max_clients) {
        const auto idle = std::min_element(clients_.begin(), clients_.end(),
                                           [](const Client& a, const Client& b) { return a.deadline < b.deadline; });
        ::close(idle->socket);
        clients_.erase(idle);
      }
      clients_.push_back(
          {.socket = socket, .deadline = Clock::now() + options_.timeout, .input = {}, .head = {}, .body = {}});
    }
  }

  /// Reads or writes as much as possible without waiting; returns false if the connection ends.
  bool serve(Client& client) {
    if (writing(client)) {
      return write(client);
    }
    std::array<char, 4096> block;
    const ssize_t got = recv(client.socket, block.data(), block.size(), 0);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (client.draining) {
      return true;
    }
    client.input.append(block.data(), static_cast<std::size_t>(got));
    const auto end = std::min(client.input.find("\r\n\r\n"), client.input.find("\n\n"));
    if (end == std::string::npos && client.input.size() < max_head) {
      return true;
    }
    respond(client, end == std::string::npos);
    return write(client);
  }

  void respond(Client& client, bool too_long) {
    auto parsed = detail::parse_request(client.input, options_.port);
    HttpResponse response;
    if (too_long) {
      response = text_response(431, concat("expected a request of at most ", max_head, " bytes"));
    } else if (parsed.refusal != 0) {
      response = text_response(parsed.refusal, parsed.reason);
    } else {
      try {
        response = handler_(parsed.request);
      } catch (const std::exception& error) {
        response = text_response(500, error.what());
      } catch (...) {
        response = text_response(500, "an exception that is not a std::exception");
      }
    }
    client.head = detail::response_head(response);
    client.body = parsed.head_only || response.status == 204 ? nullptr : std::move(response.body);
    client.deadline = Clock::now() + options_.timeout;
    client.input.clear();
  }

  bool write(Client& client) {
    const std::size_t body_size = client.body ? client.body->size() : 0;
    while (client.sent < client.head.size() + body_size) {
      const bool in_head = client.sent < client.head.size();
      const std::string& text = in_head ? client.head : *client.body;
      const std::size_t from = in_head ? client.sent : client.sent - client.head.size();
      const ssize_t sent = send(client.socket, text.data() + from, text.size() - from, MSG_NOSIGNAL);
      if (sent < 0) {
        return errno == EAGAIN || errno == EINTR;
      }
      client.sent += static_cast<std::size_t>(sent);
      client.deadline = Clock::now() + options_.timeout;
    }
    // Closing while the client still sends would reset the connection and could lose the response.
    shutdown(client.socket, SHUT_WR);
    client.draining = true;
    return true;
  }

  LoopbackServerOptions options_;
  Handler handler_;
  int listener_ = -1;
  std::array<int, 2> wake_ = {-1, -1};
  Clock::time_point accepts_from_;
  std::list<Client> clients_;
  std::thread thread_;
};

LoopbackServer::LoopbackServer(LoopbackServerOptions options, Handler handler)
    : loop_(std::make_unique<Loop>(options, std::move(handler))) {}

LoopbackServer::~LoopbackServer() = default;

std::uint16_t LoopbackServer::port() const { return loop_->port(); }

std::string LoopbackServer::url() const { return concat("http://127.0.0.1:", port(), "/"); }

}  // namespace danling::inline v0
