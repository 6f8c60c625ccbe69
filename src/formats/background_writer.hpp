// Appends to an open file on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

namespace danling::inline v0::formats {

/// Writes what it is given, in order, while its owner goes on. The thread starts with the first piece and takes no
/// signals: a file that grows past its limit is an error here and not the end of the process.
class BackgroundWriter {
 public:
  explicit BackgroundWriter(int descriptor) : descriptor_(descriptor) {}
  /// Drops what is still queued and waits for the write that goes on.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Appends after what is queued. The bytes stay as they are until wait() returns.
  void start(std::span<const std::byte> bytes);
  /// Waits until everything is written, or a write failed. Gives the system's error of the first failure, or 0; after
  /// a failure nothing more is written.
  int wait();
  /// Waits as wait() does, then appends on the calling thread.
  int write(std::span<const std::byte> bytes);

 private:
  void work();
  int append(std::span<const std::byte> bytes);

  const int descriptor_;
  std::uint64_t written_ = 0;     // by the one thread that writes
  std::uint64_t on_its_way_ = 0;  // up to where the system was asked to bring bytes to the device
  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable idle_;
  std::deque<std::span<const std::byte>> queue_;
  bool writing_ = false;
  bool stop_ = false;
  int error_ = 0;
  std::thread thread_;
};

}  // namespace danling::inline v0::formats
