#include "launch_output.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <danling/core/format.hpp>

namespace danling_command {
namespace {

/// A pipe that is ready accepts this many bytes without blocking (PIPE_BUF).
constexpr std::size_t block = 4096;
constexpr std::size_t longest_part = std::size_t{1} << 16U;

bool ready(int descriptor, int milliseconds) {
  pollfd place{descriptor, POLLOUT, 0};
  return poll(&place, 1, milliseconds) > 0;
}

}  // namespace

void LineSplitter::add(std::string_view bytes, LaunchClock::time_point now, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    std::string_view text = bytes.substr(0, end);
    if (!text.empty() && returned_) {
      if (!line_.empty() && now >= next_progress_) {
        next_progress_ = now + std::chrono::seconds(1);
        emit(sink);
      }
      line_.clear();
      returned_ = false;
    }
    while (line_.size() + text.size() > longest) {
      const std::size_t fits = longest - line_.size();
      line_ += text.substr(0, fits);
      text.remove_prefix(fits);
      emit(sink);
    }
    line_ += text;
    if (end < bytes.size()) {
      if (bytes[end] == '\n') {
        emit(sink);
        returned_ = false;
      } else {
        returned_ = true;
      }
    }
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!line_.empty()) {
    emit(sink);
  }
}

void LineSplitter::emit(const Sink& sink) {
  if (line_.find_first_not_of(" \t") != std::string::npos) {
    last_ = line_.substr(0, 500);
  }
  sink(line_);
  line_.clear();
}

void LineQueue::add(int descriptor, std::string_view prefix, std::string_view line) {
  if (parts_.empty() || parts_.back().descriptor != descriptor || parts_.back().text.size() > longest_part) {
    parts_.push_back({descriptor, {}});
  }
  std::string& text = parts_.back().text;
  text.append(prefix).append(line).push_back('\n');
  size_ += prefix.size() + line.size() + 1;
}

void LineQueue::write() {
  while (!parts_.empty() && ready(parts_.front().descriptor, 0)) {
    const Part& part = parts_.front();
    const std::size_t count = std::min(block, part.text.size() - written_);
    const ssize_t done = ::write(part.descriptor, part.text.data() + written_, count);
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) {
      return;
    }
    if (done < 0) {
      const int descriptor = part.descriptor;
      const char* const reason = std::strerror(errno);
      pop();
      auto& reported = reported_[static_cast<std::size_t>(descriptor)];
      if (!reported) {
        reported = true;
        add(2, "[launch] ",
            danling::detail::concat("expected to write output to ", descriptor == 1 ? "stdout" : "stderr", ", got ",
                                    reason, "; drops such output and continues"));
      }
      continue;
    }
    written_ += static_cast<std::size_t>(done);
    if (written_ == part.text.size()) {
      pop();
    }
  }
}

void LineQueue::finish() {
  while (!parts_.empty() && ready(parts_.front().descriptor, 5000)) {
    write();
  }
}

void LineQueue::pop() {
  size_ -= parts_.front().text.size();
  parts_.pop_front();
  written_ = 0;
}

}  // namespace danling_command
