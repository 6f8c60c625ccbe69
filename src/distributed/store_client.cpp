#include <distributed/store_client.hpp>

#ifdef USE_C10D_GLOO

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <distributed/store_protocol.hpp>
#include <distributed/watch.hpp>

namespace danling::inline v0::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t greeting = 0x64616e6c;
// For a clone: the store has answered before.
constexpr auto clone_limit = std::chrono::seconds(5);
constexpr const char* no_answer = "the store does not answer";

[[noreturn]] void throw_ended(int error = 0) {
  throw std::runtime_error(error == 0 ? "the store has ended"
                                      : "the store has ended: " + std::string(std::strerror(error)));
}

/// Waits for an event, a signal notwithstanding; false at the deadline. Without a deadline it waits forever.
bool wait_until(const Socket& socket, short event, std::optional<Deadline> deadline) {
  for (;;) {
    pollfd ready = {socket.fd(), event, 0};
    const int count = poll(&ready, 1, deadline ? static_cast<int>(time_left(*deadline).count()) : -1);
    if (count > 0 || (count == 0 && deadline && time_left(*deadline).count() == 0)) {
      return count > 0;
    }
    if (count < 0 && errno != EINTR) {
      throw_ended(errno);
    }
  }
}

/// Asks for an echo: another program may listen there, and not answer.
std::string greet_store(const Socket& connected, Deadline deadline) {
  const auto request = StoreRequest(StoreQuery::VALIDATE).number(store_magic).number(StoreQuery::PING).number(greeting);
  const std::string_view bytes = request.bytes();
  const bool sent = ::send(connected.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  std::uint32_t answer = 0;
  if (sent && !wait_until(connected, POLLIN, deadline)) {
    return "what listens there does not answer: another program, or a rank 0 that is stopped or may open no more files";
  }
  const ssize_t got = recv(connected.fd(), &answer, sizeof answer, 0);
  return got == sizeof answer && answer == greeting ? "" : "another program listens there";
}

}  // namespace

StoreClient::StoreClient(const std::string& host, int port, Deadline deadline, milliseconds timeout)
    : c10d::Store(timeout), port_(port) {
  Reached reached = reach(host, port, deadline, greet_store);
  host_ = std::move(reached.host);
  connection_ = std::move(reached.connection);
  const int on = 1;
  setsockopt(connection_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool StoreClient::ended() {
  const std::lock_guard lock(mutex_);
  char byte = 0;
  const ssize_t got = recv(connection_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  auto out = c10::make_intrusive<StoreClient>(host_, port_, std::chrono::steady_clock::now() + clone_limit, timeout_);
  out->patient_ = true;
  return out;
}

void StoreClient::await(short event) {
  if (!wait_until(connection_, event, due_)) {
    connection_ = Socket();  // a late answer would be taken for that of the next request
    throw std::runtime_error(no_answer);
  }
}

void StoreClient::send(const StoreRequest& request) {
  if (!connection_.open()) {
    throw std::runtime_error(no_answer);
  }
  due_ = answer_by_;
  if (!answer_by_ && !patient_ && timeout_ != kNoTimeout) {
    due_ = std::chrono::steady_clock::now() + std::min<milliseconds>(timeout_, longest_timeout);
  }
  std::string_view left = request.bytes();
  while (!left.empty()) {
    const ssize_t sent = ::send(connection_.fd(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(POLLOUT);
    } else if (errno != EINTR) {
      throw_ended(errno);
    }
  }
}

void StoreClient::receive(void* to, std::size_t size) {
  char* next = static_cast<char*>(to);
  for (std::size_t left = size; left > 0;) {
    const ssize_t got = recv(connection_.fd(), next, left, 0);
    if (got > 0) {
      next += got;
      left -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      throw_ended();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(POLLIN);
    } else if (errno != EINTR) {
      throw_ended(errno);
    }
  }
}

template <class Number>
Number StoreClient::receive_number() {
  Number value = {};
  receive(&value, sizeof value);
  return value;
}

std::vector<std::uint8_t> StoreClient::receive_bytes() {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(receive_number<std::uint64_t>()));
  receive(bytes.data(), bytes.size());
  return bytes;
}

void StoreClient::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::SET).text(key).text(value));
}

std::vector<std::uint8_t> StoreClient::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                  const std::vector<std::uint8_t>& desired) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::COMPARE_SET).text(key).text(expected).text(desired));
  return receive_bytes();
}

std::vector<std::uint8_t> StoreClient::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  wait_locked({key}, timeout_);
  send(StoreRequest(StoreQuery::GET).text(key));
  return receive_bytes();
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::ADD).text(key).number(value));
  return receive_number<std::int64_t>();
}

bool StoreClient::deleteKey(const std::string& key) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::DELETE_KEY).text(key));
  return receive_number<std::int64_t>() == 1;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::CHECK).texts(keys));
  return receive_number<StoreCheck>() == StoreCheck::READY;
}

std::int64_t StoreClient::getNumKeys() {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::GETNUMKEYS));
  return receive_number<std::int64_t>();
}

void StoreClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const std::lock_guard lock(mutex_);
  wait_locked(keys, timeout);
}

void StoreClient::wait_locked(const std::vector<std::string>& keys, milliseconds timeout) {
  std::optional<Deadline> deadline;
  if (timeout != kNoTimeout) {
    deadline = std::chrono::steady_clock::now() + std::min<milliseconds>(timeout, longest_timeout);
  }
  send(StoreRequest(StoreQuery::WAIT).texts(keys));
  if (wait_until(connection_, POLLIN, deadline)) {
    receive_number<StoreWait>();
    return;
  }
  send(StoreRequest(StoreQuery::CANCEL_WAIT));
  if (receive_number<StoreWait>() == StoreWait::STOP_WAITING) {  // the keys came before the server read this
    receive_number<StoreWait>();
    return;
  }
  throw std::runtime_error(concat("no key ", join(keys, ", "), " in the store within ", format_seconds(timeout)));
}

void StoreClient::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  const std::lock_guard lock(mutex_);
  send(StoreRequest(StoreQuery::APPEND).text(key).text(value));
}

std::vector<std::vector<std::uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  wait_locked(keys, timeout_);
  send(StoreRequest(StoreQuery::MULTI_GET).texts(keys));
  std::vector<std::vector<std::uint8_t>> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values.push_back(receive_bytes());
  }
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) {
  StoreRequest request(StoreQuery::MULTI_SET);
  request.number(std::uint64_t{keys.size()});
  for (std::size_t i = 0; i < keys.size(); ++i) {
    request.text(keys[i]).text(values.at(i));
  }
  const std::lock_guard lock(mutex_);
  send(request);
}

}  // namespace danling::inline v0::detail

#endif
