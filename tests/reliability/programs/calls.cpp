// Makes the file calls that its arguments name, in the current directory, and prints what each gave.
//
//   calls open write:100 fsync rename     one file, `a`; rename makes it `b`
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void tell(const std::string& call, long result) {
  std::printf("%s %s\n", call.c_str(), result < 0 ? strerrorname_np(errno) : std::to_string(result).c_str());
  std::fflush(stdout);
}

// Four threads write 500 times each; the number of writes that failed.
long write_from_threads(int file) {
  std::atomic<long> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        failed += write(file, "x", 1) == 1 ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  int file = -1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string call = word.substr(0, word.find(':'));
    const std::string text(call == word ? 0 : std::stoul(word.substr(call.size() + 1)), 'x');
    if (call == "open") {
      file = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600);
      tell(call, file < 0 ? -1 : 0);
    } else if (call == "write") {
      tell(call, write(file, text.data(), text.size()));
    } else if (call == "pwrite") {
      tell(call, pwrite(file, text.data(), text.size(), 0));
    } else if (call == "writev") {
      std::string copy = text;
      const iovec parts[] = {{copy.data(), copy.size()}, {copy.data(), copy.size()}};
      tell(call, writev(file, parts, 2));
    } else if (call == "fsync") {
      tell(call, fsync(file));
    } else if (call == "fdatasync") {
      tell(call, fdatasync(file));
    } else if (call == "truncate") {
      tell(call, ftruncate(file, 1));
    } else if (call == "rename") {
      tell(call, rename("a", "b"));
    } else if (call == "link") {
      tell(call, link("a", "c"));
    } else if (call == "unlink") {
      tell(call, unlink("a"));
    } else if (call == "remove") {
      tell(call, std::remove("a"));
    } else if (call == "mkdir") {
      tell(call, mkdir("d", 0700));
    } else if (call == "close") {
      tell(call, close(file));
    } else if (call == "threads") {
      tell(call, write_from_threads(file));
    } else {
      return 99;
    }
  }
  return 0;
}
