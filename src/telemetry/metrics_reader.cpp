#include <danling/telemetry/metrics_reader.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include <danling/core/detail/descriptor.hpp>
#include <danling/core/error.hpp>

#include <telemetry/curve_lines.hpp>

namespace danling::inline v0 {
namespace {

using detail::Descriptor;

constexpr std::size_t block_size = std::size_t{1} << 20U;
// A longer line cannot be a line of a run.
constexpr std::size_t max_line = std::size_t{16} << 20U;
// For fewer bytes, starting a thread costs more than it saves.
constexpr std::uint64_t bytes_per_thread = std::uint64_t{8} << 20U;
constexpr std::size_t tail_size = 256;

[[noreturn]] void fail_read(const std::filesystem::path& path, int reason) {
  fail("metrics_reader.update", "expected to read ", path.string(), ", got ", quote(std::strerror(reason)));
}

/// Returns the number of bytes read: less than `size` only at the end of the file.
std::size_t read_at(const Descriptor& file, char* out, std::size_t size, std::uint64_t offset,
                    const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(file.get(), out + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno != EINTR) {
      fail_read(path, errno);
    }
    if (got == 0) {
      break;
    }
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return done;
}

/// Reads the lines that begin in [begin, end), except an incomplete line at the end of the file; returns the end of the
/// last line. Does not map the file, since a resume may truncate it.
std::uint64_t read_lines(detail::CurveLines& lines, const Descriptor& file, std::uint64_t begin, std::uint64_t end,
                         bool skip_first, const std::filesystem::path& path) {
  std::string text;
  std::uint64_t offset = begin;  // position of `text`
  std::uint64_t done = begin;
  bool skipping = skip_first;
  bool too_long = false;
  while (true) {
    const std::size_t kept = text.size();
    text.resize(kept + block_size);
    text.resize(kept + read_at(file, text.data() + kept, block_size, offset + kept, path));
    if (text.size() == kept) {
      return done;
    }
    std::size_t from = 0;
    std::size_t search = kept;
    while (offset + from < end || skipping || too_long) {
      const auto stop = text.find('\n', search);
      if (stop == std::string::npos) {
        break;
      }
      if (too_long) {
        lines.add_damaged(concat("expected a line of at most ", static_cast<std::uint64_t>(max_line), " bytes"));
        too_long = false;
      } else if (!skipping) {
        lines.add(std::string_view(text).substr(from, stop - from));
      }
      skipping = false;
      from = search = stop + 1;
      done = offset + from;
    }
    if (offset + from >= end && !skipping && !too_long) {
      return done;
    }
    text.erase(0, from);
    offset += from;
    if (text.size() > max_line) {
      too_long = too_long || !skipping;
      offset += text.size();
      text.clear();
    }
  }
}

}  // namespace

struct MetricsReader::Position {
  std::uint64_t device = 0, inode = 0;
  std::uint64_t offset = 0;  ///< the end of the last complete line read
  std::uint64_t size = 0;
  std::string tail;  ///< the bytes before `offset`; they differ if the file was truncated and grew again
};

struct MetricsReader::Content : detail::CurveLines {
  using CurveLines::CurveLines;
};

MetricsReader::MetricsReader(std::filesystem::path path, Options options)
    : path_(std::move(path)), options_(options), position_(std::make_unique<Position>()) {
  options_.max_buckets = std::max<std::size_t>(options_.max_buckets, 2);
  if (options_.threads == 0) {
    options_.threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 4);
  }
  content_ = std::make_unique<Content>(options_);
}

MetricsReader::~MetricsReader() = default;
MetricsReader::MetricsReader(MetricsReader&&) noexcept = default;
MetricsReader& MetricsReader::operator=(MetricsReader&&) noexcept = default;

bool MetricsReader::update() {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const auto forget = [&] {
    const bool changed = content_->lines > 0;
    *position_ = {};
    content_ = std::make_unique<Content>(options_);
    return changed;
  };
  struct stat status{};
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return forget();
    }
    fail_read(path_, errno);
  }
  if (fstat(file.get(), &status) != 0) {
    fail_read(path_, errno);
  }
  Position& at = *position_;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string tail(at.tail.size(), '\0');
  bool changed = false;
  if (at.device != status.st_dev || at.inode != status.st_ino || size < at.offset ||
      read_at(file, tail.data(), tail.size(), at.offset - tail.size(), path_) != tail.size() || tail != at.tail) {
    changed = forget();
  }
  at.device = status.st_dev;
  at.inode = status.st_ino;
  at.size = size;
  if (size == at.offset) {
    return changed;
  }

  const auto lines_before = content_->lines;
  const std::uint64_t todo = size - at.offset;
  const auto parts = std::clamp<std::uint64_t>(todo / bytes_per_thread, 1, options_.threads);
  std::vector<detail::CurveLines> others(parts - 1, detail::CurveLines(options_));
  std::vector<std::uint64_t> ends(parts, 0);
  std::vector<std::exception_ptr> errors(parts);
  std::vector<std::thread> threads;
  const auto read = [&](std::uint64_t part) {
    try {
      const std::uint64_t begin = at.offset + todo * part / parts;
      const std::uint64_t end = at.offset + todo * (part + 1) / parts;
      // A line belongs to the part in which it begins. So start one byte earlier and skip to the first line end.
      ends[part] = read_lines(part == 0 ? *content_ : others[part - 1], file, part == 0 ? begin : begin - 1, end,
                              part != 0, path_);
    } catch (...) {
      errors[part] = std::current_exception();
    }
  };
  std::uint64_t part = 1;
  try {
    for (; part < parts; ++part) {
      threads.emplace_back(read, part);
    }
  } catch (const std::system_error&) {  // the process has no thread left
  }
  for (; part < parts; ++part) {
    read(part);
  }
  read(0);
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& error : errors) {
    if (error) {
      forget();
      std::rethrow_exception(error);
    }
  }
  for (const auto& other : others) {
    content_->append(other);
  }
  at.offset = *std::max_element(ends.begin(), ends.end());
  at.tail.resize(std::min<std::uint64_t>(tail_size, at.offset));
  if (read_at(file, at.tail.data(), at.tail.size(), at.offset - at.tail.size(), path_) != at.tail.size()) {
    at.tail.clear();
    at.inode = 0;  // truncated meanwhile: the next update reads the whole file
  }
  return changed || content_->lines != lines_before;
}

const std::vector<MetricCurve>& MetricsReader::curves() const { return content_->curves; }
std::uint64_t MetricsReader::lines() const { return content_->lines; }
std::uint64_t MetricsReader::damaged() const { return content_->damaged; }
const std::vector<DamagedLine>& MetricsReader::damaged_lines() const { return content_->damaged_lines; }
std::uint64_t MetricsReader::omitted() const { return content_->omitted; }
std::uint64_t MetricsReader::incomplete_bytes() const {
  return position_->size > position_->offset ? position_->size - position_->offset : 0;
}

}  // namespace danling::inline v0
