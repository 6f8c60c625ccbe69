#include <danling/workspace/run_directory.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <set>
#include <system_error>

#include <danling/core/error.hpp>

#include <workspace/lock_text.hpp>

namespace danling::inline v0 {
namespace fs = std::filesystem;
namespace {

bool is_temporary(const std::string& name) { return name.starts_with('.') || name.find(".tmp-") != std::string::npos; }

bool is_file(const fs::path& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

// Returns true if a directory contains files that mark a run; reads no file.
bool looks_like_run(const fs::path& dir) {
  return is_file(dir / ".lock") || is_file(dir / "metadata" / "git.yaml") || is_file(dir / "summary.json");
}

// Returns the directories in `folder`, including links to directories, without hidden directories, such as a run that
// is being removed.
std::vector<fs::path> folders_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> out;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code absent;
    if (!entry->path().filename().string().starts_with('.') && entry->is_directory(absent)) {
      out.push_back(entry->path());
    }
  }
  return out;
}

// Adds the bytes of all files in the directory `fd` and closes it. Calls relative to `fd` resolve a long path once, not
// for each file.
void add_bytes(int fd, std::set<std::pair<dev_t, ino_t>>& linked, std::uint64_t& bytes) {
  DIR* const directory = ::fdopendir(fd);
  if (directory == nullptr) {
    ::close(fd);
    return;
  }
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    struct stat facts{};
    if (name == "." || name == ".." || ::fstatat(fd, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (S_ISDIR(facts.st_mode)) {
      const int inner = ::openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inner >= 0) {
        add_bytes(inner, linked, bytes);
      }
    } else if (S_ISREG(facts.st_mode) && (facts.st_nlink == 1 || linked.emplace(facts.st_dev, facts.st_ino).second)) {
      bytes += static_cast<std::uint64_t>(facts.st_size);
    }
  }
  ::closedir(directory);
}

}  // namespace

// Uses the absolute path, so that "." has a name too.
std::string RunDirectory::id() const {
  std::error_code error;
  return fs::absolute(dir_, error).lexically_normal().filename().string();
}

std::string RunDirectory::folder() const {
  std::error_code error;
  return fs::absolute(dir_, error).lexically_normal().parent_path().filename().string();
}

std::string RunDirectory::lineage() const {
  std::string name = folder();
  const std::string run = id();
  // The name of the run repeats the code id and ends with the config id.
  const auto dash = run.rfind('-');
  if (dash != std::string::npos && name.ends_with("-" + run.substr(0, dash))) {
    name.resize(name.size() - dash - 1);
  }
  return name;
}

LockInfo RunDirectory::lock() const {
  LockInfo out;
  const int file = ::open((dir_ / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    out.state = errno == ENOENT ? LockInfo::State::free : LockInfo::State::unknown;
    return out;
  }
  const std::string text = detail::read_lock_text(file);
  const std::string pid = detail::lock_field(text, "pid");
  std::from_chars(pid.data(), pid.data() + pid.size(), out.pid);
  out.host = detail::lock_field(text, "host");
  out.timestamp = detail::lock_field(text, "timestamp");
  int status = 0;
  while ((status = ::flock(file, LOCK_SH | LOCK_NB)) != 0 && errno == EINTR) {
  }
  // On a file system without locks (ENOLCK, ENOTSUP) the state is unknown.
  out.state = status == 0            ? LockInfo::State::free
              : errno == EWOULDBLOCK ? LockInfo::State::held
                                     : LockInfo::State::unknown;
  ::close(file);
  return out;
}

std::optional<std::uint64_t> RunDirectory::file_size(std::string_view name) const {
  struct stat facts{};
  return ::stat((dir_ / name).c_str(), &facts) == 0 && S_ISREG(facts.st_mode)
             ? std::optional(static_cast<std::uint64_t>(facts.st_size))
             : std::nullopt;
}

std::vector<CheckpointEntry> RunDirectory::checkpoints() const {
  std::vector<CheckpointEntry> out;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoint_dir(), error), end; !error && entry != end; entry.increment(error)) {
    struct stat facts{};
    const std::string name = entry->path().filename().string();
    const auto extension = entry->path().extension();
    if (is_temporary(name) || (extension != ".pth" && extension != ".safetensors") ||
        ::stat(entry->path().c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
      continue;
    }
    std::error_code ignored;
    out.push_back({entry->path(), static_cast<std::uint64_t>(facts.st_size), facts.st_ino,
                   fs::last_write_time(entry->path(), ignored)});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return out;
}

std::vector<std::string> RunDirectory::attempts() const {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& path : folders_in(dir_ / "attempts", error)) {
    out.push_back(path.filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<fs::path> RunDirectory::log_file() const {
  std::optional<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator entry(dir_ / "logs", error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    // Logs of other ranks and rotated ones have a second extension.
    const bool is_first = !path.stem().has_extension();
    if (path.extension() == ".log" && is_first && (!out || *out < path)) {
      out = path;
    }
  }
  return out;
}

std::uint64_t RunDirectory::bytes() const {
  std::set<std::pair<dev_t, ino_t>> linked;
  std::uint64_t out = 0;
  if (const int fd = ::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    add_bytes(fd, linked, out);
  }
  return out;
}

RunLock::RunLock(const fs::path& dir) : file_(::open((dir / ".lock").c_str(), O_RDONLY | O_CLOEXEC)) {
  const bool missing = file_ < 0 && errno == ENOENT;
  check<Error>(file_ >= 0 || missing, "runs.hold", "expected to open ", quote((dir / ".lock").string()), ", got ",
               quote(std::strerror(errno)));
  // A file system without locks does not detect a running process.
  if (!missing && detail::take_lock(file_) == EWOULDBLOCK) {
    const auto owner = RunDirectory(dir).lock();
    ::close(file_);
    fail<StateError>("runs.hold", "expected a run in which no process runs, got process ", owner.pid, " on ",
                     owner.host, " in ", quote(dir.string()), "; stop it first");
  }
}

RunLock::~RunLock() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

std::string run_status(const LockInfo& lock, const ReadResult<StoredSummary>& summary,
                       const ReadResult<MetricsPosition>& last_line) {
  if (lock.state == LockInfo::State::held) {
    return "running";
  }
  if (!summary) {
    return "dead";
  }
  // An attempt that had nothing to do keeps the summary of the attempt that finished.
  const bool of_this_attempt = lock.timestamp.empty() || lock.timestamp == summary->timestamp;
  const bool went_on = last_line && last_line->global_step > summary->run.global_step;
  return of_this_attempt || (summary->run.status == "finished" && !went_on) ? summary->run.status : "dead";
}

bool is_run_directory(const fs::path& dir) {
  const RunDirectory run(dir);
  return !run.lock().timestamp.empty() || (looks_like_run(dir) && run.code_identity());
}

std::vector<fs::path> list_runs(const fs::path& root) {
  if (looks_like_run(root)) {
    return {root};
  }
  std::error_code error;
  std::vector<fs::path> out;
  for (const auto& folder : folders_in(root, error)) {
    if (looks_like_run(folder)) {
      out.push_back(folder);
      continue;
    }
    std::error_code unreadable;  // treats a removed or unreadable folder as empty
    for (const auto& dir : folders_in(folder, unreadable)) {
      if (looks_like_run(dir)) {
        out.push_back(dir);
      }
    }
  }
  check<Error>(!error, "runs.list", "expected a directory with runs, got ", quote(error.message()), " for ",
               quote(root.string()));
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<std::chrono::system_clock::time_point> parse_timestamp(std::string_view timestamp) {
  std::tm time{};
  int microseconds = 0;
  const std::string text(timestamp);
  constexpr std::string_view form = "00000000-000000-000000";
  const auto fits = [](char c, char expected) { return expected == '0' ? c >= '0' && c <= '9' : c == expected; };
  if (text.size() != form.size() || !std::equal(text.begin(), text.end(), form.begin(), fits) ||
      std::sscanf(text.c_str(), "%4d%2d%2d-%2d%2d%2d-%6d", &time.tm_year, &time.tm_mon, &time.tm_mday, &time.tm_hour,
                  &time.tm_min, &time.tm_sec, &microseconds) != 7 ||
      time.tm_mon < 1 || time.tm_mon > 12 || time.tm_mday < 1 || time.tm_mday > 31 || time.tm_hour > 23 ||
      time.tm_min > 59 || time.tm_sec > 60) {
    return std::nullopt;
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  time.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&time)) + std::chrono::microseconds(microseconds);
}

}  // namespace danling::inline v0
