// The log file without spdlog.
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <danling/core/error.hpp>

#include <core/removed_file.hpp>
#include <telemetry/log_file.hpp>

namespace danling::inline v0::detail {
namespace {

class PlainLogFile : public LogFile {
 public:
  explicit PlainLogFile(const std::string& path) : path_(path), file_(open_log_file(path)) {}
  ~PlainLogFile() override { std::fclose(file_); }
  PlainLogFile(const PlainLogFile&) = delete;
  PlainLogFile& operator=(const PlainLogFile&) = delete;

  int write(LogLevel level, std::string_view text) override {
    static constexpr const char* names[] = {"info", "warning", "error"};
    timeval now{};
    gettimeofday(&now, nullptr);
    std::tm time{};
    localtime_r(&now.tv_sec, &time);
    std::array<char, 64> start{};
    std::size_t length = std::strftime(start.data(), start.size(), "%Y-%m-%d %H:%M:%S", &time);
    length += static_cast<std::size_t>(std::snprintf(start.data() + length, start.size() - length, ".%03d %-7s  ",
                                                     static_cast<int>(now.tv_usec / 1000),
                                                     names[static_cast<std::size_t>(level)]));
    errno = 0;
    const bool written = std::fwrite(start.data(), 1, length, file_) == length &&
                         std::fwrite(text.data(), 1, text.size(), file_) == text.size() &&
                         std::fputc('\n', file_) != EOF;
    return written ? 0 : errno;
  }

  int flush() override { return flush_log_file(file_, path_); }

 private:
  std::filesystem::path path_;
  std::FILE* file_;
};

}  // namespace

LogFile::~LogFile() = default;

std::FILE* open_log_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "a+e");
  check(file != nullptr, "logger.open", "expected a log file that can be written, got ", quote(std::strerror(errno)),
        " for ", path);
  return file;
}

int flush_log_file(std::FILE* file, const std::filesystem::path& path) {
  if (std::fflush(file) != 0) {
    return errno;
  }
  const int reason = restore_removed(fileno(file), path);
  return reason == ENOENT ? 0 : reason;  // the folder is missing: retried when the run's directory is recreated
}

std::unique_ptr<LogFile> open_plain_log_file(const std::string& path) { return std::make_unique<PlainLogFile>(path); }

}  // namespace danling::inline v0::detail
