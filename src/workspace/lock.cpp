#include <workspace/lock.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <danling/core/error.hpp>

#include <core/host_name.hpp>
#include <workspace/lock_text.hpp>

namespace danling::inline v0 {
namespace {

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Returns a hint if the launcher's variables do not set a rank that danling reads: every process then starts the same
// run.
std::string launcher_hint() {
  for (const char* const size : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (is_set(size)) {  // read_process_identity supports this launcher, so another run holds the directory
      return {};
    }
  }
  for (const char* const name : {"PMIX_RANK", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "PALS_RANKID", "ALPS_APP_PE"}) {
    if (is_set(name)) {
      return concat("; ", name, "=", std::string_view(std::getenv(name)),
                    " is not read as the rank of this process: set RANK and WORLD_SIZE, or start it once");
    }
  }
  return {};
}

}  // namespace

Workspace::Lock::Lock(const std::filesystem::path& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  check<ConfigError>(file_ >= 0, "workspace.create", "expected a directory that can be written, got ",
                     quote(std::strerror(errno)), " for ", path.string(), "; set workspace_root to another one");
  // On a file system without locks (ENOLCK, ENOTSUP, ENOSYS) the run continues without one.
  const bool busy = detail::take_lock(file_) == EWOULDBLOCK;
  const std::string text = detail::read_lock_text(file_);
  if (busy) {
    ::close(file_);
    const std::string directory = path.parent_path().string();
    const std::string pid = detail::lock_field(text, "pid");
    const std::string host = detail::lock_field(text, "host");
    if (pid == std::to_string(getpid()) && host == detail::host_name()) {
      fail<StateError>("workspace.lock", "expected ", directory,
                       " to be free, got another runner of this process in it; close() that one first, or give one of "
                       "them another lineage or workspace_root");
    }
    fail<StateError>("workspace.lock", "expected ", directory, " to be free, got ",
                     pid.empty() ? "another process that starts" : concat("process ", pid, " on ", host, " running"),
                     " in it; wait for it, stop it, or change the config", launcher_hint());
  }
  earlier_attempt_ = detail::lock_field(text, "timestamp");
}

Workspace::Lock::~Lock() {
  // Keeps the file: if it were removed, two processes could lock different files of that name.
  ::close(file_);
}

bool Workspace::Lock::exists() const {
  struct stat held{};
  struct stat named{};
  if (::stat(path_.c_str(), &named) != 0) {
    return errno != ENOENT;
  }
  return ::fstat(file_, &held) != 0 || (held.st_dev == named.st_dev && held.st_ino == named.st_ino);
}

void Workspace::Lock::write_owner(const std::string& timestamp) {
  const std::string text = concat("pid: ", static_cast<std::int64_t>(getpid()), "\nhost: ", detail::host_name(),
                                  "\ntimestamp: ", timestamp, "\n");
  int reason = ftruncate(file_, 0) == 0 ? 0 : errno;
  for (std::size_t done = 0; reason == 0 && done < text.size();) {
    const ssize_t written = pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      reason = errno;
    }
  }
  check<ConfigError>(reason == 0, "workspace.create", "expected a directory that can be written, got ",
                     quote(std::strerror(reason)), " for ", path_.string(), "; set workspace_root to another one");
}

}  // namespace danling::inline v0
