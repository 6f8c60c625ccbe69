// A client of the key-value store through which processes meet.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <distributed/sockets.hpp>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace danling::inline v0::detail {

class StoreRequest;

/// Speaks the protocol of LibTorch's TCPStore, to a `StoreServer` or to the store of a launcher (torchrun). LibTorch's
/// own client asks a name server for the name of each address that it connects to (10 s if none answers), and logs a
/// stack trace when the store ends. Thread safe; a request blocks the others, a wait too: clone for another thread.
/// Every function throws `std::runtime_error` when the store has ended, or has not answered within the timeout; it is
/// of no use after that.
class StoreClient : public c10d::Store {
 public:
  /// Connects. @throws std::runtime_error with a reason at the deadline.
  StoreClient(const std::string& host, int port, Deadline deadline, std::chrono::milliseconds timeout);

  /// Numeric address of the store.
  const std::string& host() const { return host_; }
  /// Returns true if the store has closed the connection; does not wait.
  bool ended();

  /// Sets a limit for all further answers, or with nullopt again the timeout for each.
  void answer_by(std::optional<Deadline> deadline) { answer_by_ = deadline; }
  /// Connects again, within five seconds. The clone is for a thread of its own, and waits for answers without a limit.
  /// @throws std::runtime_error
  c10::intrusive_ptr<c10d::Store> clone() override;

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  /// Sets `key` to `desired` if its value is `expected`, or if it does not exist and `expected` is empty; returns the
  /// value after that.
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  /// Waits for the key, up to the store's timeout.
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  /// @throws std::runtime_error at the timeout, which names the keys.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  /// Sends a request whose answer is due within the timeout.
  void send(const StoreRequest& request);
  void receive(void* to, std::size_t size);
  void await(short event);
  template <class Number>
  Number receive_number();
  std::vector<std::uint8_t> receive_bytes();
  void wait_locked(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

  std::string host_;
  int port_;
  Socket connection_;
  std::optional<Deadline> answer_by_;
  std::optional<Deadline> due_;  ///< of the current request
  bool patient_ = false;         ///< without a limit for answers
  std::mutex mutex_;             ///< held from a request to the end of its answer
};

}  // namespace danling::inline v0::detail
