#include <telemetry/metrics_log.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <danling/core/error.hpp>

#include <core/removed_file.hpp>
#include <core/signal_mask.hpp>
#include <telemetry/log_keys.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::size_t most_kept = std::size_t{16} << 20U;

void put_string(std::string& out, std::string_view text) {
  static constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += digits[byte >> 4U];
      out += digits[byte & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

void put_key(std::string& out, std::string_view key) {
  if (out.back() != '{') {
    out += ',';
  }
  put_string(out, key);
  out += ':';
}

void put_integer(std::string& out, std::int64_t value) {
  std::array<char, 24> text;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

void put_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    std::array<char, 32> text;
    const std::string_view digits(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
    out += digits;
    // Writes a fraction, since readers parse "-0" as an integer and lose the sign.
    out += digits.find_first_of(".e") == std::string_view::npos ? ".0" : "";
  } else {
    out += std::isnan(value) ? "\"NaN\"" : value < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  }
}

void put_entries(std::string& out, const Result& result) {
  for (const auto& [name, value] : result) {
    put_key(out, name);
    if (const auto* number = std::get_if<double>(&value)) {
      put_number(out, *number);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      out += '[';
      for (std::size_t i = 0; i < list->size(); ++i) {
        out += i == 0 ? "" : ",";
        put_number(out, (*list)[i]);
      }
      out += ']';
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      out += array->text(
          [](double element) {
            std::string text;
            put_number(text, element);
            return text;
          },
          ",");
    } else {
      out += '{';
      put_entries(out, std::get<Result>(value));
      out += '}';
    }
  }
}

struct Extent {
  std::int64_t lines = 0;
  std::uint64_t bytes = 0;
};

[[noreturn]] void fail_file(std::string_view where, const std::filesystem::path& path, int reason) {
  fail(where, "expected to write ", path.string(), ", got ", quote(std::strerror(reason)),
       reason == ENOSPC || reason == EDQUOT ? "; free some space" : "");
}

// Returns the extent of the complete lines of a file, at most `most` lines. What cannot be read is not the end: the
// caller would remove it.
Extent extent_of(int file, std::int64_t most, const std::filesystem::path& path) {
  Extent found;
  std::uint64_t position = 0;
  std::array<char, 65536> block;
  while (found.lines < most) {
    const ssize_t got = pread(file, block.data(), block.size(), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail_file("metrics_log.read", path, errno);
    }
    if (got == 0) {
      break;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(got) && found.lines < most; ++i) {
      if (block[i] == '\n') {
        ++found.lines;
        found.bytes = position + i + 1;
      }
    }
    position += static_cast<std::uint64_t>(got);
  }
  return found;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    fail_file("metrics_log.open", path_, errno);
  }
  const off_t size = lseek(file_, 0, SEEK_END);
  Extent whole;
  try {
    whole = extent_of(file_, std::numeric_limits<std::int64_t>::max(), path_);
  } catch (...) {
    ::close(file_);
    throw;
  }
  offset_ = whole.bytes;
  lines_ = whole.lines;
  if (size > 0 && offset_ != static_cast<std::uint64_t>(size) && ftruncate(file_, static_cast<off_t>(offset_)) != 0) {
    const int reason = errno;
    ::close(file_);
    fail_file("metrics_log.open", path_, reason);
  }
}

MetricsLog::~MetricsLog() {
  write_kept();
  ::close(file_);
}

void MetricsLog::append(const MetricsLine& line) {
  for (const auto& entry : line.metrics) {
    check<MetricError>(
        std::find(detail::log_keys.begin(), detail::log_keys.end(), entry.name) == detail::log_keys.end(),
        "metrics_log.append",
        "expected a metric without a reserved name (split, mode, epoch, global_step, "
        "iteration, telemetry), got ",
        quote(entry.name));
  }
  buffer_.clear();
  buffer_ += '{';
  put_key(buffer_, "split");
  put_string(buffer_, line.split);
  put_key(buffer_, "mode");
  put_string(buffer_, line.mode);
  if (line.epoch) {
    put_key(buffer_, "epoch");
    put_integer(buffer_, *line.epoch);
  }
  put_key(buffer_, "global_step");
  put_integer(buffer_, line.global_step);
  if (line.iteration) {
    put_key(buffer_, "iteration");
    put_integer(buffer_, *line.iteration);
  }
  put_entries(buffer_, line.metrics);
  if (!line.telemetry.empty()) {
    put_key(buffer_, "telemetry");
    buffer_ += '{';
    put_entries(buffer_, line.telemetry);
    buffer_ += '}';
  }
  buffer_ += "}\n";

  int reason = kept_.empty() ? 0 : write_kept();
  if (reason != 0 && kept_.size() + buffer_.size() > most_kept) {
    fail("metrics_log.append", "expected to write ", path_.string(), ", got ", quote(std::strerror(reason)), "; ",
         num_unwritten_, " lines are kept already; this one is lost");
  }
  kept_ += buffer_;
  ++num_unwritten_;
  reason = reason == 0 ? write_kept() : reason;
  if (reason != 0) {
    fail_file("metrics_log.append", path_, reason);
  }
}

int MetricsLog::write_kept() noexcept {
  if (torn_ && ftruncate(file_, static_cast<off_t>(offset_)) != 0) {
    return errno;
  }
  torn_ = false;
  const detail::FileSizeSignalMask quiet;
  int reason = 0;
  std::size_t done = 0;
  // One write, unless the disk is full: then a second write returns the reason.
  while (reason == 0 && done < kept_.size()) {
    const ssize_t written = ::write(file_, kept_.data() + done, kept_.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      reason = written == 0 ? EIO : errno;
    }
  }
  const std::size_t whole = done == 0 ? 0 : kept_.rfind('\n', done - 1) + 1;
  if (whole < done) {
    // If this fails, the next write or the next opening of the file retries it.
    torn_ = ftruncate(file_, static_cast<off_t>(offset_ + whole)) != 0;
  }
  const auto count = std::count(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(whole), '\n');
  offset_ += whole;
  lines_ += count;
  num_unwritten_ -= count;
  kept_.erase(0, whole);
  return reason;
}

void MetricsLog::flush() {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);  // the folder may have been removed
  if (const int reason = detail::restore_removed(file_, path_); reason != 0) {
    fail_file("metrics_log.flush", path_, reason);
  }
  if (const int reason = write_kept(); reason != 0) {
    fail_file("metrics_log.flush", path_, reason);
  }
}

void MetricsLog::truncate_to_lines(std::int64_t lines) {
  check<StateError>(lines <= lines_, "metrics_log.truncate_to_lines", "expected at least ", lines, " lines in ",
                    path_.string(), ", as when the checkpoint was written, got ", lines_,
                    "; it is not the file of this checkpoint or lost lines: move it away to start a new one");
  truncate_to(extent_of(file_, lines, path_).bytes);
}

void MetricsLog::truncate_to(std::uint64_t offset) {
  check<StateError>(offset <= offset_, "metrics_log.truncate_to", "expected at least ", offset, " bytes in ",
                    path_.string(), ", where the checkpoint was written, got ", offset_,
                    "; it is not the file of this checkpoint or lost lines: move it away to start a new one");
  char last = '\n';
  if (offset > 0 && pread(file_, &last, 1, static_cast<off_t>(offset - 1)) != 1) {
    fail_file("metrics_log.truncate_to", path_, errno);
  }
  check<StateError>(last == '\n', "metrics_log.truncate_to", "expected a line of ", path_.string(), " to end at byte ",
                    offset,
                    ", got the middle of one; it is not the file of this checkpoint: move it away to start a "
                    "new one");
  if (ftruncate(file_, static_cast<off_t>(offset)) != 0) {
    fail_file("metrics_log.truncate_to", path_, errno);
  }
  kept_.clear();
  num_unwritten_ = 0;
  torn_ = false;
  offset_ = offset;
  lines_ = extent_of(file_, std::numeric_limits<std::int64_t>::max(), path_).lines;
}

std::int64_t MetricsLog::restore(std::int64_t lines, std::string_view kept) {
  kept = kept.substr(0, kept.rfind('\n') + 1);
  const auto waited = static_cast<std::int64_t>(std::count(kept.begin(), kept.end(), '\n'));
  if (lines_ >= lines) {  // the kept lines were written after the save
    truncate_to_lines(std::max<std::int64_t>(lines, 0));
    return 0;
  }
  const std::int64_t written = std::max<std::int64_t>(lines - waited, 0);
  truncate_to_lines(std::min(lines_, written));
  const std::int64_t missing = written - lines_;
  kept_ = kept;
  num_unwritten_ = waited;
  write_kept();
  return missing;
}

void MetricsLog::sync() {
  flush();
  if (fdatasync(file_) != 0) {
    fail_file("metrics_log.sync", path_, errno);
  }
}

}  // namespace danling::inline v0
