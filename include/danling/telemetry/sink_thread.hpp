// SinkThread: passes records to one sink in a separate thread, so that a slow or failing sink does not delay training.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// A record, or a function that builds it when the first sink takes it, in that sink's thread.
class SinkItem {
 public:
  using Make = std::function<SinkRecord()>;
  /// A final record is never dropped.
  explicit SinkItem(SinkRecord record, bool final = true);
  /// A record that is built later and may be dropped. `bytes` is the memory that `make` holds until then.
  SinkItem(Make make, std::size_t bytes);
  ~SinkItem();
  SinkItem(const SinkItem&) = delete;
  SinkItem& operator=(const SinkItem&) = delete;

  bool is_final() const { return final_; }
  /// Memory until the record is built, at least 1024; 0 if it was given.
  std::size_t bytes() const { return bytes_; }
  /// Builds the record in the first call. Thread-safe. @throws the exception of the function, in each call
  const SinkRecord& record() const;

 private:
  struct Late;
  std::unique_ptr<Late> late_;
  std::optional<SinkRecord> now_;
  bool final_;
  std::size_t bytes_ = 0;
};

struct SinkThreadOptions {
  /// Maximum number of queued records that may be dropped; further ones are. Final records are not limited. Records
  /// that are built later have the separate limit `capacity_bytes`, so that tensors do not displace numbers; one may
  /// exceed it.
  std::size_t capacity = 4096;
  std::size_t capacity_bytes = std::size_t{256} << 20U;
  /// Wait between attempts while the sink fails.
  std::chrono::milliseconds retry = std::chrono::seconds(1);
};

/// Runs the sink's thread from construction to close(). All functions are for one calling thread.
class SinkThread {
 public:
  /// Receives messages from both threads; must be thread-safe.
  using Log = std::function<void(LogLevel level, const std::string& text)>;

  SinkThread(std::shared_ptr<Sink> sink, Log log, SinkThreadOptions options = {});
  /// Closes; does not wait for a sink that hangs.
  ~SinkThread();
  SinkThread(const SinkThread&) = delete;
  SinkThread& operator=(const SinkThread&) = delete;

  const std::string& name() const { return name_; }
  /// Begins the run, or rolls it back to an earlier position.
  void begin(const RunInfo& run);
  /// Queues a record. Never waits for a write of the sink.
  void post(const std::shared_ptr<const SinkItem>& item);
  /// Waits until the sink has written and flushed all earlier records. Returns false after `most`, or if the sink
  /// fails.
  bool drain(std::chrono::milliseconds most);
  /// Begins to close: from now on a failing record is tried only once more. Does not wait.
  void begin_close();
  /// Waits at most `most` for the remaining records and logs the number of lost records. Detaches the thread of a sink
  /// that hangs. Safe to call twice.
  void close(std::chrono::milliseconds most);

  std::int64_t num_written() const;
  std::int64_t num_dropped() const;

 private:
  struct Shared;
  std::string name_;
  std::shared_ptr<Shared> shared_;
  bool closed_ = false;
};

}  // namespace danling::inline v0
