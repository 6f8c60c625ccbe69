#include <distributed/store_server.hpp>

#ifdef USE_C10D_GLOO

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <stdexcept>
#include <system_error>
#include <unordered_map>

#include <core/signal_mask.hpp>
#include <distributed/store_protocol.hpp>

namespace danling::inline v0::detail {
namespace {

// Pause after a connection could not be accepted, for want of file descriptors: it stays in the queue.
constexpr auto accept_pause = std::chrono::milliseconds(20);
// Time for a client's first request: strangers that say nothing would use up the file descriptors.
constexpr auto greeting_limit = std::chrono::seconds(10);

/// A connection of a client.
struct Visitor {
  explicit Visitor(Socket accepted) : socket(std::move(accepted)) {}

  Socket socket;
  std::string in;                    ///< bytes that are not read yet
  std::string out;                   ///< answers
  std::size_t sent = 0;              ///< of them
  std::vector<std::string> awaited;  ///< keys of a wait that did not exist when it began
  std::size_t missing = 0;           ///< of these, how many do not exist yet
  bool valid = false;                ///< it has said that it speaks this protocol
  Deadline valid_by = std::chrono::steady_clock::now() + greeting_limit;
};

/// Receives a part of what has arrived: other clients wait meanwhile. @return false if the connection has ended
bool receive(Visitor& visitor) {
  std::array<char, 65536> block;
  const ssize_t got = read(visitor.socket.fd(), block.data(), block.size());
  if (got > 0) {
    visitor.in.append(block.data(), static_cast<std::size_t>(got));
  }
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

/// Sends a part of the answers; the thread blocks SIGPIPE. @return false if the connection has ended
bool send_answers(Visitor& visitor) {
  if (visitor.out.empty()) {
    return true;
  }
  const ssize_t got = write(visitor.socket.fd(), visitor.out.data() + visitor.sent, visitor.out.size() - visitor.sent);
  if (got >= 0) {
    visitor.sent += static_cast<std::size_t>(got);
    if (visitor.sent == visitor.out.size()) {
      visitor.out.clear();
      visitor.sent = 0;
    }
  }
  return got >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(Socket listening) : listening_(std::move(listening)) {
    int ends[2];
    if (fcntl(listening_.fd(), F_SETFL, O_NONBLOCK) != 0 || pipe2(ends, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "store");
    }
    stop_read_ = Socket(ends[0]);
    stop_write_ = Socket(ends[1]);
  }

  void stop() { (void)!write(stop_write_.fd(), "x", 1); }

  /// Runs in the thread.
  void run() noexcept {
    std::vector<pollfd> ready;
    for (;;) {
      ready = {{stop_read_.fd(), POLLIN, 0}, {listening_.fd(), POLLIN, 0}};
      bool all_valid = true;
      for (const Visitor& visitor : visitors_) {
        all_valid = all_valid && visitor.valid;
        ready.push_back({visitor.socket.fd(), static_cast<short>(visitor.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      const int found = poll(ready.data(), ready.size(), all_valid ? -1 : 1000);
      if (found < 0 && errno == EINTR) {
        continue;
      }
      if (found < 0 || ready[0].revents != 0) {  // the former if the program has lowered its limit of open files
        visitors_.clear();
        listening_ = Socket();
        return;
      }
      const auto now = std::chrono::steady_clock::now();
      auto state = ready.begin() + 2;
      for (auto visitor = visitors_.begin(); visitor != visitors_.end(); ++state) {
        const auto current = visitor++;
        if ((state->revents != 0 && !serve(*current)) || (!current->valid && current->valid_by < now)) {
          forget_wait(*current);
          visitors_.erase(current);
        }
      }
      if (ready[1].revents != 0) {
        accept_all();
      }
    }
  }

 private:
  void accept_all() {
    for (;;) {
      Socket accepted(accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!accepted.open()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          std::this_thread::sleep_for(accept_pause);
        }
        return;
      }
      const int on = 1;
      setsockopt(accepted.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      visitors_.emplace_back(std::move(accepted));
    }
  }

  /// Answers what a visitor has asked. @return false if the connection has ended, or is a stranger's
  bool serve(Visitor& visitor) {
    bool open = false;
    try {
      open = receive(visitor);
      std::size_t answered = 0;
      for (;;) {
        StoreReader reader(std::string_view(visitor.in).substr(answered));
        if (answered == visitor.in.size() || !answer(visitor, reader)) {
          break;
        }
        answered += reader.position();
      }
      visitor.in.erase(0, answered);
    } catch (const std::exception&) {  // not a request of this protocol, or one without memory for it
      return false;
    }
    return open && send_answers(visitor);
  }

  /// Answers one request; false if it has not arrived completely.
  bool answer(Visitor& visitor, StoreReader& reader);

  void put(const std::string& key, std::string value) {
    values_[key] = std::move(value);
    const auto waiting = waiting_.find(key);
    if (waiting == waiting_.end()) {
      return;
    }
    for (Visitor* const visitor : waiting->second) {
      if (--visitor->missing == 0) {
        visitor->awaited.clear();
        visitor->out.append(StoreRequest().number(StoreWait::STOP_WAITING).bytes());
        send_answers(*visitor);  // if that fails, the next poll finds the end of the connection
      }
    }
    waiting_.erase(waiting);
  }

  void begin_wait(Visitor& visitor, const std::vector<std::string>& keys) {
    forget_wait(visitor);
    for (const std::string& key : keys) {
      if (!values_.contains(key)) {
        waiting_[key].push_back(&visitor);
        visitor.awaited.push_back(key);
      }
    }
    visitor.missing = visitor.awaited.size();
    if (visitor.missing == 0) {
      visitor.out.append(StoreRequest().number(StoreWait::STOP_WAITING).bytes());
    }
  }

  void forget_wait(Visitor& visitor) {
    for (const std::string& key : visitor.awaited) {
      if (const auto waiting = waiting_.find(key); waiting != waiting_.end()) {
        std::erase(waiting->second, &visitor);
        if (waiting->second.empty()) {
          waiting_.erase(waiting);
        }
      }
    }
    visitor.awaited.clear();
    visitor.missing = 0;
  }

  std::string_view value_of(std::string_view key) const {
    const auto found = values_.find(std::string(key));
    return found == values_.end() ? std::string_view() : found->second;
  }

  Socket listening_, stop_read_, stop_write_;
  std::list<Visitor> visitors_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<Visitor*>> waiting_;  ///< by key
};

bool StoreServer::Loop::answer(Visitor& visitor, StoreReader& reader) {
  const auto query = reader.number<StoreQuery>();
  if (!visitor.valid && query != StoreQuery::VALIDATE) {
    throw std::invalid_argument("a program that does not speak this protocol");
  }
  StoreRequest reply;
  switch (query) {
    case StoreQuery::VALIDATE: {
      const auto magic = reader.number<std::uint32_t>();
      if (reader.complete() && magic != store_magic) {
        throw std::invalid_argument("a program that does not speak this protocol");
      }
      visitor.valid = reader.complete();
      break;
    }
    case StoreQuery::PING: {
      reply.number(reader.number<std::uint32_t>());
      break;
    }
    case StoreQuery::SET: {
      const auto key = reader.text();
      const auto value = reader.text();
      if (reader.complete()) {
        put(std::string(key), std::string(value));
      }
      break;
    }
    case StoreQuery::COMPARE_SET: {
      const std::string key(reader.text());
      const auto expected = reader.text();
      const auto desired = reader.text();
      if (reader.complete()) {
        const auto found = values_.find(key);
        const bool sets = found == values_.end() ? expected.empty() : found->second == expected;
        if (sets) {
          put(key, std::string(desired));
        }
        reply.text(sets ? desired : found == values_.end() ? expected : found->second);
      }
      break;
    }
    case StoreQuery::GET: {
      reply.text(value_of(reader.text()));
      break;
    }
    case StoreQuery::ADD: {
      const std::string key(reader.text());
      const auto more = reader.number<std::int64_t>();
      if (reader.complete()) {
        const std::string before(value_of(key));
        const auto old = static_cast<std::uint64_t>(before.empty() ? 0 : std::stoll(before));
        const auto sum = static_cast<std::int64_t>(old + static_cast<std::uint64_t>(more));  // wraps
        put(key, std::to_string(sum));
        reply.number(sum);
      }
      break;
    }
    case StoreQuery::CHECK: {
      const auto keys = reader.texts();
      const bool all = std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return values_.contains(key); });
      reply.number(all ? StoreCheck::READY : StoreCheck::NOT_READY);
      break;
    }
    case StoreQuery::WAIT: {
      const auto keys = reader.texts();
      if (reader.complete()) {
        begin_wait(visitor, keys);
      }
      break;
    }
    case StoreQuery::CANCEL_WAIT: {
      forget_wait(visitor);
      reply.number(StoreWait::WAIT_CANCELED);
      break;
    }
    case StoreQuery::GETNUMKEYS: {
      reply.number(static_cast<std::int64_t>(values_.size()));
      break;
    }
    case StoreQuery::DELETE_KEY: {
      const std::string key(reader.text());
      reply.number(static_cast<std::int64_t>(reader.complete() ? values_.erase(key) : 0));
      break;
    }
    case StoreQuery::APPEND: {
      const std::string key(reader.text());
      const auto more = reader.text();
      if (reader.complete()) {
        put(key, std::string(value_of(key)).append(more));
      }
      break;
    }
    case StoreQuery::MULTI_GET: {
      for (const std::string& key : reader.texts()) {
        reply.text(value_of(key));
      }
      break;
    }
    case StoreQuery::MULTI_SET: {
      std::vector<std::pair<std::string, std::string>> pairs;
      for (auto count = reader.number<std::uint64_t>(); reader.complete() && count > 0; --count) {
        std::string key(reader.text());
        pairs.emplace_back(std::move(key), reader.text());
      }
      for (auto& [key, value] : pairs) {
        if (reader.complete()) {
          put(key, std::move(value));
        }
      }
      break;
    }
    default:
      throw std::invalid_argument("a request that this store does not know");
  }
  if (reader.complete()) {
    visitor.out.append(reply.bytes());
  }
  return reader.complete();
}

StoreServer::StoreServer(Socket listening) : loop_(std::make_unique<Loop>(std::move(listening))) {
  const SignalMask quiet;
  thread_ = std::thread([loop = loop_.get()] {
    pthread_setname_np(pthread_self(), "danling_store");
    loop->run();
  });
}

StoreServer::~StoreServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace danling::inline v0::detail

#endif
