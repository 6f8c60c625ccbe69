// Files on a system that fails: the test program has its own write, fsync and close, which the library calls.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>

#include <danling/core/error.hpp>
#include <danling/formats/pth.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

// Faults of descriptors of regular files; none by default.
struct FaultPlan {
  std::atomic<std::size_t> most_bytes{SIZE_MAX};  // that one write takes
  std::atomic<int> interrupt_every{0};            // the how-manieth write is interrupted instead
  std::atomic<std::size_t> room{SIZE_MAX};        // bytes until the disk is full
  std::atomic<int> sync_error{0};                 // errno of the next fsync
  std::atomic<int> close_error{0};                // errno of the next close
  std::atomic<int> writes{0};
};
FaultPlan fault_plan;

// All is well again at the end of a test.
struct FaultScope {
  ~FaultScope() {
    fault_plan.most_bytes = SIZE_MAX;
    fault_plan.interrupt_every = 0;
    fault_plan.room = SIZE_MAX;
    fault_plan.sync_error = 0;
    fault_plan.close_error = 0;
    fault_plan.writes = 0;
  }
};

}  // namespace

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t count) {
  if (descriptor > 2) {
    const int number = ++fault_plan.writes;
    if (fault_plan.interrupt_every > 0 && number % fault_plan.interrupt_every == 0) {
      errno = EINTR;
      return -1;
    }
    count = std::min(count, fault_plan.most_bytes.load());
    if (count > 0 && fault_plan.room == 0) {
      errno = ENOSPC;
      return -1;
    }
    count = std::min(count, fault_plan.room.load());
    if (fault_plan.room != SIZE_MAX) {
      fault_plan.room -= count;
    }
  }
  return syscall(SYS_write, descriptor, bytes, count);
}

extern "C" int fsync(int descriptor) {
  if (const int error = fault_plan.sync_error.exchange(0); error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int close(int descriptor) {
  const int error = fault_plan.close_error.exchange(0);
  const auto result = static_cast<int>(syscall(SYS_close, descriptor));
  if (error != 0) {
    errno = error;
    return -1;
  }
  return result;
}

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling_test::error_of;

std::string fault_content(std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) {
    out.push_back(static_cast<char>('a' + i * 31 % 23));
  }
  return out;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    out.push_back(entry.path().filename().string());
  }
  return out;
}

TEST_CASE("AtomicFile: short and interrupted writes lose nothing", "[formats]") {
  const danling_test::TempDir directory;
  const FaultScope scope;
  const std::string content = fault_content(300000);
  fault_plan.most_bytes = 7001;
  fault_plan.interrupt_every = 3;
  AtomicFile file(directory / "a");
  file.write(std::string_view(content).substr(0, 100));
  file.write(std::string_view(content).substr(100, 200000));
  file.write(std::string_view(content).substr(200100));
  file.commit();
  CHECK(fault_plan.writes > 60);
  CHECK(danling_test::read_file(directory / "a") == content);
}

TEST_CASE("AtomicFile: a full disk is told once, and spoils the new file only", "[formats]") {
  const danling_test::TempDir directory;
  const FaultScope scope;
  danling_test::write_file(directory / "a", "old");
  const std::string path = (directory / "a").string();
  {
    AtomicFile file(path);
    fault_plan.room = 150000;
    file.write(fault_content(100000));
    CHECK(error_of<CheckpointError>([&] { file.write(fault_content(100000)); }) ==
          "[checkpoint.write] expected to write '" + path + "', got errno 28 (No space left on device)");
    fault_plan.room = SIZE_MAX;  // room again: the file has a hole in what it should hold
    const std::string refused = "[checkpoint.write] expected no call after an error, got one (file '" + path + "')";
    CHECK(error_of<CheckpointError>([&] { file.write("more"); }) == refused);
    CHECK(error_of<CheckpointError>([&] { file.finish(); }) == refused);
    CHECK(error_of<CheckpointError>([&] { file.commit(); }) == refused);
  }
  CHECK(names_in(directory.path()) == std::vector<std::string>{"a"});
  CHECK(danling_test::read_file(directory / "a") == "old");
}

TEST_CASE("AtomicFile: after a failed sync nothing makes the file sound", "[formats]") {
  const danling_test::TempDir directory;
  const FaultScope scope;
  danling_test::write_file(directory / "a", "old");
  const std::string path = (directory / "a").string();
  const auto attempt = [&](std::atomic<int>& error, const std::string& what) {
    AtomicFile file(path);
    file.write("new");
    error = EIO;
    CHECK(error_of<CheckpointError>([&] { file.commit(); }) ==
          "[checkpoint.write] expected to " + what + " '" + path + "', got errno 5 (Input/output error)");
    // The system tells a lost write once; the next sync would succeed.
    CHECK(error_of<CheckpointError>([&] { file.commit(); }) ==
          "[checkpoint.write] expected no call after an error, got one (file '" + path + "')");
  };
  attempt(fault_plan.sync_error, "sync");
  attempt(fault_plan.close_error, "close");
  CHECK(names_in(directory.path()) == std::vector<std::string>{"a"});
  CHECK(danling_test::read_file(directory / "a") == "old");
}

TEST_CASE("AtomicFile: a limit of file size is an error and not the end of the process", "[formats]") {
  const danling_test::TempDir directory;
  const std::string path = (directory / "a").string();
  for (const std::size_t size : {std::size_t{5000}, std::size_t{50000000}}) {  // at the end, and in the middle
    danling_test::Child child([&](const auto&) {
      const rlimit limit{4096, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
      signal(SIGXFSZ, SIG_DFL);
      try {
        AtomicFile file(path);
        file.write(fault_content(size));
        file.commit();
      } catch (const CheckpointError& error) {
        sigset_t pending;
        sigpending(&pending);
        const bool told = std::string(error.what()) ==
                          "[checkpoint.write] expected to write '" + path + "', got errno 27 (File too large)";
        return told && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1;
      }
      return 2;
    });
    CHECK(child.wait() == 0);
  }
  CHECK(names_in(directory.path()).empty());
}

TEST_CASE("AtomicFile: a process that was forked off leaves the file alone", "[formats]") {
  const danling_test::TempDir directory;
  std::optional<AtomicFile> file(directory / "a");
  const std::string content = "content";
  file->write(std::as_bytes(std::span(content)), [] {});
  danling_test::Child child([&](const auto&) {
    file.reset();
    return 0;
  });
  CHECK(child.wait() == 0);
  file->commit();
  CHECK(danling_test::read_file(directory / "a") == "content");
}

TEST_CASE("write_pth: a full disk in the middle of a large storage leaves no file", "[formats]") {
  const danling_test::TempDir directory;
  const FaultScope scope;
  const std::string path = (directory / "a.pth").string();
  const std::string content = fault_content(20000000);
  const std::vector<std::uint64_t> sizes = {content.size()};
  const danling::formats::RecordTree tree = danling::formats::TensorRecord{
      danling::formats::DType::uint8, 0, 0, {static_cast<std::int64_t>(content.size())}, {1}, false, false, false};
  const auto attempt = [&] {
    AtomicFile file(path);
    danling::formats::write_pth(file, tree, sizes, [&](std::size_t) { return std::as_bytes(std::span(content)); });
    file.commit();
  };
  fault_plan.room = 10000000;
  CHECK(error_of<CheckpointError>(attempt) ==
        "[checkpoint.write] expected to write '" + path + "', got errno 28 (No space left on device)");
  CHECK(names_in(directory.path()).empty());
  fault_plan.room = SIZE_MAX;
  attempt();
  danling::formats::PthReader(path).verify();
}

}  // namespace
