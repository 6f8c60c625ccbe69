#include "background_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "signal_mask.hpp"

namespace danling::inline v0::formats {
namespace {

// Small pieces let a full disk be noticed early, and the device start early.
constexpr std::size_t kPiece = std::size_t{1} << 23;
constexpr std::uint64_t kPage = std::uint64_t{1} << 16;  // of the largest that systems have

}  // namespace

BackgroundWriter::~BackgroundWriter() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      queue_.clear();
    }
    queued_.notify_one();
    thread_.join();
  }
}

void BackgroundWriter::start(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  if (!thread_.joinable()) {
    try {
      const SignalMask quiet;
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error&) {  // no more threads for this process: then without
      write(bytes);
      return;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (error_ != 0) {
      return;
    }
    queue_.push_back(bytes);
  }
  queued_.notify_one();
}

int BackgroundWriter::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !writing_; });
  return error_;
}

int BackgroundWriter::write(std::span<const std::byte> bytes) {
  if (wait() == 0) {
    const FileSizeSignalMask quiet;
    error_ = append(bytes);
  }
  return error_;
}

void BackgroundWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) {
      return;
    }
    const auto bytes = queue_.front();
    queue_.pop_front();
    writing_ = true;
    lock.unlock();
    const int error = append(bytes);
    lock.lock();
    writing_ = false;
    if (error != 0) {
      error_ = error;
      queue_.clear();
    }
    if (queue_.empty()) {
      idle_.notify_all();
    }
  }
}

int BackgroundWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return done < 0 ? errno : EIO;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    written_ += static_cast<std::uint64_t>(done);
    if (written_ - on_its_way_ >= kPiece) {
      // Only a hint: whatever goes wrong on the way is told by fsync.
      const std::uint64_t whole = written_ / kPage * kPage;
      ::sync_file_range(descriptor_, static_cast<off_t>(on_its_way_), static_cast<off_t>(whole - on_its_way_),
                        SYNC_FILE_RANGE_WRITE);
      on_its_way_ = whole;
    }
  }
  return 0;
}

}  // namespace danling::inline v0::formats
