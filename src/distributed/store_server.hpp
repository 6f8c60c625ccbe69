// The server of the key-value store through which processes meet.
#pragma once

#include <memory>
#include <thread>

#include <distributed/sockets.hpp>

namespace danling::inline v0::detail {

/// Serves the protocol of LibTorch's TCPStore from a thread of its own, to `StoreClient`s and to LibTorch's clients
/// (without queues, `listKeys` and `barrier`). LibTorch's own server asks a name server for the name of each client,
/// one after another.
class StoreServer {
 public:
  /// Serves at a socket from `listen_at`. @throws std::system_error
  explicit StoreServer(Socket listening);
  /// Closes all connections. A forked child has no such thread, and must not get here.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace danling::inline v0::detail
