#include <distributed/shared_memory.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/watch.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t page = 4096;
constexpr int spins = 2000;
constexpr std::chrono::milliseconds slice(50);  // interval at which waiting ranks check that others are alive
// A rank that unwinds after an error ends its memory before the program can abort the group with the reason.
constexpr std::chrono::seconds leaving_time(2);

std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int file_lock(int file, int command, struct flock& lock) {
  int result = 0;
  while ((result = fcntl(file, command, &lock)) < 0 && errno == EINTR) {
  }
  return result;
}

// The name exists until all ranks have opened the file. Without this, a process killed before that would leak the
// memory.
void remove_forgotten(const std::string& prefix) {
  const std::filesystem::path folder = "/dev/shm";
  const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && entry.last_write_time(error) < hour_ago && !error) {
      shm_unlink(concat("/", name).c_str());
    }
  }
}

std::string random_name() {
  const std::string prefix = concat("danling-", getuid(), "-");
  remove_forgotten(prefix);
  std::random_device entropy;
  return concat("/", prefix, entropy(), "-", entropy());
}

/// Reserves the pages, so that later writes cannot fail for lack of memory.
/// @return the file, or -1.
int create_file(const std::string& name, std::size_t length) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return -1;
  }
  int error = 0;
  while ((error = posix_fallocate(file, 0, static_cast<off_t>(length))) == EINTR) {
  }
  if (error != 0) {
    close(file);
    shm_unlink(name.c_str());
    errno = error;
    return -1;
  }
  return file;
}

}  // namespace

/// Placed before the flags of each rank.
struct alignas(64) SharedMemory::Header {
  std::atomic<std::uint32_t> waiters;  // number of ranks that sleep on a flag of this rank
  std::atomic<std::uint32_t> aborted;
  std::atomic<std::uint32_t> left;  // 1 after a regular exit, not after a kill
  char words[1012];
};

namespace {

std::size_t header_bytes(std::size_t header, std::size_t flags) {
  return rounded(header + flags * sizeof(std::uint32_t), page);
}

/// An open file. Its name is removed once all ranks have mapped it, or one has died.
struct Opening {
  std::string name = {};  ///< set on rank 0
  int file = -1;
  ~Opening() {
    if (file >= 0) {
      close(file);
    }
    if (!name.empty()) {
      shm_unlink(name.c_str());
    }
  }
};

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(const Group& group, const Options& options, std::string* reason) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  const int size = group.size();
  const std::size_t each = header_bytes(sizeof(Header), options.flags) + rounded(options.bytes, page);
  const std::size_t length = each * static_cast<std::size_t>(size);
  Opening opening;
  std::string problem;
  if (group.rank() == 0) {
    opening.name = random_name();
    opening.file = create_file(opening.name, length);
    if (opening.file < 0) {
      problem = concat("shared memory of ", length, " bytes cannot be allocated: ", std::strerror(errno));
      opening.name.clear();
    }
  }
  const std::string name = group.all_gather(opening.name).front();
  if (!name.empty() && opening.file < 0) {
    opening.file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
    const int error = errno;
    problem =
        opening.file >= 0 ? ""
        : error == ENOENT
            ? concat("rank ", group.rank(), " does not see the shared memory of rank 0: another machine or container")
            : concat("shared memory cannot be opened on rank ", group.rank(), ": ", std::strerror(error));
  }
  void* base = MAP_FAILED;
  if (opening.file >= 0) {
    base = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, opening.file, 0);
    problem = base == MAP_FAILED ? concat("shared memory cannot be mapped: ", std::strerror(errno)) : "";
  }
  std::shared_ptr<SharedMemory> memory;
  if (base != MAP_FAILED) {
    memory.reset(new SharedMemory(std::exchange(opening.file, -1), static_cast<std::byte*>(base), length, options,
                                  group.rank(), GroupCall::ranks_of(group)));
    problem = memory->lock_own() ? "" : concat("shared memory cannot be locked: ", std::strerror(errno));
  }
  const std::vector<std::string> problems = group.all_gather(problem);
  const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& text) { return !text.empty(); });
  if (first == problems.end() && !name.empty()) {
    return memory;
  }
  if (reason != nullptr) {
    *reason = first == problems.end() ? "" : *first;
  }
  return nullptr;
}

SharedMemory::SharedMemory(int file, std::byte* base, std::size_t length, Options options, int rank,
                           std::vector<std::int64_t> ranks)
    : file_(file),
      base_(base),
      length_(length),
      options_(options),
      rank_(rank),
      size_(static_cast<int>(ranks.size())),
      ranks_(std::move(ranks)) {
  set_timeout(options.timeout);
}

void SharedMemory::set_timeout(std::chrono::milliseconds timeout) {
  options_.timeout = std::min<std::chrono::milliseconds>(timeout, longest_timeout);
}

SharedMemory::~SharedMemory() {
  header(rank_).left.store(1);
  munmap(base_, length_);
  close(file_);
}

SharedMemory::Header& SharedMemory::header(int rank) const {
  const std::size_t each = header_bytes(sizeof(Header), options_.flags);
  return *reinterpret_cast<Header*>(base_ + static_cast<std::size_t>(rank) * each);
}

std::atomic<std::uint32_t>& SharedMemory::flag(int rank, std::size_t index) const {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(&header(rank) + 1)[index];
}

std::byte* SharedMemory::part(int rank) const {
  const std::size_t headers = header_bytes(sizeof(Header), options_.flags) * static_cast<std::size_t>(size_);
  return base_ + headers + rounded(options_.bytes, page) * static_cast<std::size_t>(rank);
}

// The lock belongs to the open file: it lasts as long as this object or this process.
bool SharedMemory::lock_own() const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank_;
  lock.l_len = 1;
  return file_lock(file_, F_OFD_SETLK, lock) == 0;
}

bool SharedMemory::has_ended(int rank) const {
  if (rank == rank_) {
    return false;
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return file_lock(file_, F_OFD_GETLK, lock) == 0 && lock.l_type == F_UNLCK;
}

void SharedMemory::raise(std::size_t index, std::uint32_t value) const {
  flag(rank_, index).store(value);
  if (header(rank_).waiters.load() != 0) [[unlikely]] {
    syscall(SYS_futex, &flag(rank_, index), FUTEX_WAKE, size_, nullptr, nullptr, 0);
  }
}

bool SharedMemory::is_raised(int rank, std::size_t index, std::uint32_t value) const {
  const std::uint32_t now = flag(rank, index).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - value) >= 0;
}

bool SharedMemory::all_raised(std::size_t index, std::uint32_t value) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_raised(rank, index, value)) {
      return false;
    }
  }
  return true;
}

void SharedMemory::await(std::size_t index, std::uint32_t value, std::string_view operation) const {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_raised(rank, index, value)) {
      await_rank(rank, index, value, deadline, operation);
    }
  }
}

bool SharedMemory::wait_for(std::size_t index, std::uint32_t value, std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int rank = 0; rank < size_; ++rank) {
    bool raised = spin(rank, index, value);
    while (!raised && std::chrono::steady_clock::now() < deadline) {
      raised = sleep(rank, index, value);
    }
    if (!raised) {
      return false;
    }
  }
  return true;
}

std::optional<int> SharedMemory::ended_rank(std::size_t index, std::uint32_t value) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_raised(rank, index, value) && has_ended(rank) && !is_raised(rank, index, value)) {
      return rank;
    }
  }
  return std::nullopt;
}

bool SharedMemory::spin(int rank, std::size_t index, std::uint32_t value) const {
  for (int spin = 0; spin < spins; ++spin) {
    if (is_raised(rank, index, value)) {
      return true;
    }
    pause_core();
  }
  return is_raised(rank, index, value);
}

bool SharedMemory::sleep(int rank, std::size_t index, std::uint32_t value) const {
  std::atomic<std::uint32_t>& watched = flag(rank, index);
  header(rank).waiters.fetch_add(1);
  if (const std::uint32_t now = watched.load(); static_cast<std::int32_t>(now - value) < 0) {
    const timespec time = {0, std::chrono::nanoseconds(slice).count()};
    syscall(SYS_futex, &watched, FUTEX_WAIT, now, &time, nullptr, 0);
  }
  header(rank).waiters.fetch_sub(1);
  return is_raised(rank, index, value);
}

void SharedMemory::await_rank(int rank, std::size_t index, std::uint32_t value,
                              std::chrono::steady_clock::time_point deadline, std::string_view operation) const {
  if (spin(rank, index, value)) {
    return;
  }
  std::optional<std::chrono::steady_clock::time_point> left_since;
  while (!sleep(rank, index, value)) {
    const auto now = std::chrono::steady_clock::now();
    check_aborts(operation);
    if (look_) {
      look_();
    }
    // A rank that has raised its flag may have finished and exited.
    if (const std::optional<int> ended = ended_rank(index, value)) {
      left_since = left_since.value_or(now);
      if (!look_ || header(*ended).left.load() == 0 || now - *left_since > leaving_time) {
        fail_ended(*ended, operation);
      }
    }
    if (now > deadline) {
      time_out(index, value, operation);
    }
  }
}

void SharedMemory::check_aborts(std::string_view operation) const {
  for (int rank = 0; rank < size_; ++rank) {
    const Header& of_rank = header(rank);
    if (of_rank.aborted.load() != 0) {
      fail<DistributedError>("group.collective", "expected all ", size_, " ranks to join ", operation,
                             ", got an abort of rank ", name(rank), ": ",
                             std::string_view(of_rank.words, strnlen(of_rank.words, sizeof of_rank.words)));
    }
  }
}

void SharedMemory::fail_ended(int rank, std::string_view operation) const {
  Failure failure(concat("[group.collective] expected all ", size_, " ranks to join ", operation,
                         ", got no answer from rank ", name(rank), ", which has ended; see its log (seen from rank ",
                         name(rank_), ")"));
  failure.ranks = {name(rank)};
  throw Failure(std::move(failure));
}

void SharedMemory::time_out(std::size_t index, std::uint32_t value, std::string_view operation) const {
  std::vector<std::int64_t> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_raised(rank, index, value)) {
      missing.push_back(name(rank));
    }
  }
  Failure failure(concat("[group.collective] expected all ", size_, " ranks to join ", operation, " within ",
                         format_seconds(options_.timeout), ", got no answer from rank ", join(missing),
                         ", which is alive but waits elsewhere or computes (seen from rank ", name(rank_), ")"));
  failure.ranks = std::move(missing);
  failure.timed_out = true;
  throw Failure(std::move(failure));
}

void SharedMemory::abort(std::string_view reason) const {
  Header& own = header(rank_);
  const std::size_t length = std::min(reason.size(), sizeof own.words - 1);
  std::memcpy(own.words, reason.data(), length);
  own.words[length] = '\0';
  own.aborted.store(1);
}

}  // namespace danling::inline v0::detail
