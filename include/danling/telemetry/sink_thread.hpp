// SinkThread: gives records to one sink on a thread of its own, so that a slow or failing sink delays nobody.
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

/// A record that is built when the first sink takes it, by that sink's thread.
class SinkItem {
 public:
  using Make = std::function<SinkRecord()>;
  /// `final`: never dropped.
  explicit SinkItem(SinkRecord record, bool final = true);
  /// It may be dropped. `bytes`: what it holds until it is built.
  SinkItem(Make make, std::size_t bytes);
  ~SinkItem();
  SinkItem(const SinkItem&) = delete;
  SinkItem& operator=(const SinkItem&) = delete;

  bool is_final() const { return final_; }
  /// 0 for one that was given as a record.
  std::size_t bytes() const { return bytes_; }
  /// Builds it once; from any thread. @throws what the function throws, each time
  const SinkRecord& record() const;

 private:
  struct Late;
  std::unique_ptr<Late> late_;
  std::optional<SinkRecord> now_;
  bool final_;
  std::size_t bytes_ = 0;
};

struct SinkThreadOptions {
  /// Records that wait; a further one is dropped, unless it is final. Those that are built later have a bound of their
  /// own, so that tensors crowd out no numbers.
  std::size_t capacity = 4096;
  std::size_t capacity_bytes = std::size_t{256} << 20U;
  /// Between attempts while the sink fails.
  std::chrono::milliseconds retry = std::chrono::seconds(1);
};

/// Used by one thread, but for its own. The sink's thread lives from construction to close().
class SinkThread {
 public:
  /// Receives warnings, from both threads; must be thread-safe.
  using Log = std::function<void(LogLevel level, const std::string& text)>;

  SinkThread(std::shared_ptr<Sink> sink, Log log, SinkThreadOptions options = {});
  /// Closes without waiting for a sink that hangs.
  ~SinkThread();
  SinkThread(const SinkThread&) = delete;
  SinkThread& operator=(const SinkThread&) = delete;

  const std::string& name() const { return name_; }
  /// Begins the run, or returns to an earlier place of it.
  void begin(const RunInfo& run);
  /// Takes no lock that the sink holds while it writes.
  void post(const std::shared_ptr<const SinkItem>& item);
  /// Waits until the sink has taken and flushed everything before. @return false after the time, or when the sink fails
  bool drain(std::chrono::milliseconds most);
  /// From now on a record that fails has one more attempt. Does not wait.
  void begin_close();
  /// Waits for what is left, at most so long; logs what was lost. A sink that hangs keeps its thread. Safe to call
  /// twice.
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
