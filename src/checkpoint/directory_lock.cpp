#include <checkpoint/directory_lock.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

void DirectoryLock::lock(const std::filesystem::path& directory) {
  if (descriptor_ >= 0) {
    return;
  }
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<CheckpointError>(descriptor >= 0, "checkpoint.write", "expected to open the directory ",
                         quote(directory.string()), ", got errno ", errno, " (", std::generic_category().message(errno),
                         ")");
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    fail<StateError>("checkpoint.lock", "expected ", quote(directory.string()),
                     " to be free, got another manager that saves into it; close that one, or save elsewhere");
  }
  descriptor_ = descriptor;
}

void DirectoryLock::unlock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = -1;
}

bool DirectoryLock::is_removed(const std::filesystem::path& directory) const {
  struct stat status{};
  return (::stat(directory.c_str(), &status) != 0 && errno == ENOENT) ||
         (descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && status.st_nlink == 0);
}

}  // namespace danling::inline v0
