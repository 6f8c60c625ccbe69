// LogFile by spdlog. Only this file includes spdlog; it must not include LibTorch, which contains another fmt.
#include <telemetry/log_file.hpp>

#if DANLING_WITH_SPDLOG

#include <cerrno>

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

namespace danling::inline v0::detail {
namespace {

// spdlog's file sink does not report a failed flush, by which a full disk is detected.
class FileSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FileSink(const std::string& path) : path_(path), file_(open_log_file(path)) {}
  ~FileSink() override { std::fclose(file_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  int take_error() {
    const int error = error_;
    error_ = 0;
    return error;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    errno = 0;
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size()) {
      error_ = errno;
    }
  }
  void flush_() override {
    if (const int error = flush_log_file(file_, path_); error != 0) {
      error_ = error;
    }
  }

 private:
  std::filesystem::path path_;
  std::FILE* file_;
  int error_ = 0;
};

class SpdlogLogFile : public LogFile {
 public:
  explicit SpdlogLogFile(const std::string& path) : sink_(std::make_shared<FileSink>(path)), logger_("danling", sink_) {
    logger_.set_level(spdlog::level::info);
    logger_.set_pattern("%Y-%m-%d %H:%M:%S.%e %-7l  %v");
  }

  int write(LogLevel level, std::string_view text) override {
    static constexpr spdlog::level::level_enum levels[] = {spdlog::level::info, spdlog::level::warn,
                                                           spdlog::level::err};
    logger_.log(levels[static_cast<std::size_t>(level)], spdlog::string_view_t(text.data(), text.size()));
    return sink_->take_error();
  }
  int flush() override {
    logger_.flush();
    return sink_->take_error();
  }

 private:
  std::shared_ptr<FileSink> sink_;
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<LogFile> open_spdlog_log_file(const std::string& path) { return std::make_unique<SpdlogLogFile>(path); }

}  // namespace danling::inline v0::detail

#else

namespace danling::inline v0::detail {
std::unique_ptr<LogFile> open_spdlog_log_file(const std::string&) { return nullptr; }
}  // namespace danling::inline v0::detail

#endif
