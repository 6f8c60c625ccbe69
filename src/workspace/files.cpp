#include <danling/workspace/files.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/core/round.hpp>

#include <core/signal_mask.hpp>

namespace danling::inline v0 {
namespace {

[[noreturn]] void fail_write(const std::filesystem::path& path, int reason) {
  fail("workspace.write", "expected to write ", path.string(), ", got ", quote(std::strerror(reason)),
       reason == ENOSPC || reason == EDQUOT ? "; free some space" : "");
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_;
};

// Writes, syncs and closes the file; returns errno of the first failure, or 0.
int fill(Descriptor& file, std::string_view text) {
  const detail::FileSizeSignalMask quiet;
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file.get()) != 0) {
    return errno;
  }
  // Network file systems may report a write error only at close.
  return ::close(file.release()) != 0 && errno != EINTR ? errno : 0;
}

nlohmann::ordered_json json_of(double value, int digits) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-Infinity" : "Infinity";
  }
  return round_to(value, digits);
}

nlohmann::ordered_json json_of(const Result& result, int digits) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : result) {
    if (const auto* number = std::get_if<double>(&value)) {
      out[name] = json_of(*number, digits);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      auto& items = out[name] = nlohmann::ordered_json::array();
      for (const double item : *list) {
        items.push_back(json_of(item, digits));
      }
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      out[name] = nlohmann::ordered_json::parse(array->text([&](double item) { return json_of(item, digits).dump(); }));
    } else {
      out[name] = json_of(std::get<Result>(value), digits);
    }
  }
  return out;
}

}  // namespace

std::filesystem::path ensure_dir(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check<Error>(!error || std::filesystem::is_directory(directory), "workspace.ensure_dir", "expected a directory ",
               quote(directory.string()), " that exists or can be created, got errno ", error.value(), " (",
               error.message(), ")");
  return directory;
}

void write_atomic(const std::filesystem::path& path, std::string_view text) {
  static std::atomic<unsigned> counter{0};
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const auto temporary =
      folder / concat(".", path.filename().string(), ".tmp-", static_cast<std::int64_t>(getpid()), "-", counter++);
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    fail_write(path, errno);
  }
  int reason = fill(file, text);
  if (reason == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) {
    reason = errno;
  }
  if (reason != 0) {
    ::unlink(temporary.c_str());
    fail_write(path, reason);
  }
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a directory (EINVAL); the rename is complete nevertheless.
  if (directory.get() >= 0 && ::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_write(path, errno);
  }
}

void remove_temporaries(const std::filesystem::path& folder) noexcept {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') && name.find(".tmp-") != std::string::npos && entry->is_regular_file(ignored)) {
      std::filesystem::remove(entry->path(), ignored);
    }
  }
}

DiskUsage disk_usage(const std::filesystem::path& directory) {
  DiskUsage out;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status{};
    if (lstat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      ++out.files;
      out.bytes += seen.emplace(status.st_dev, status.st_ino).second ? static_cast<std::uint64_t>(status.st_size) : 0;
    }
  }
  return out;
}

std::string read_text(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out;
  std::array<char, 16384> block{};
  ssize_t got = file.get() < 0 ? -1 : 0;
  if (file.get() >= 0) {
    while ((got = ::read(file.get(), block.data(), block.size())) > 0 || (got < 0 && errno == EINTR)) {
      if (got > 0) {
        out.append(block.data(), static_cast<std::size_t>(got));
      }
    }
  }
  if (got < 0) {
    fail("workspace.read", "expected to read ", path.string(), ", got ", quote(std::strerror(errno)));
  }
  return out;
}

std::string to_json(const Result& result, int digits) {
  return json_of(result, digits).dump(4, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace danling::inline v0
