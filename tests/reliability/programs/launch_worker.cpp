// A worker of `danling launch` that needs no LibTorch.
//
//   launch_worker lines N         writes N numbered lines to stdout and to stderr, cut where lines do not end
//   launch_worker signals         prints each signal that it gets; after SIGINT, SIGTERM, SIGHUP or SIGQUIT it listens
//                                 for half a second more and exits with 128 + signal
//   launch_worker descriptors     prints the numbers of its open descriptors
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

// In pieces of lengths that no line has.
void write_in_pieces(int descriptor, const std::string& text, std::size_t piece) {
  for (std::size_t from = 0; from < text.size();) {
    const ssize_t done = write(descriptor, text.data() + from, std::min(piece, text.size() - from));
    if (done <= 0) {
      std::_Exit(3);
    }
    from += static_cast<std::size_t>(done);
  }
}

int lines(int count) {
  std::string out;
  std::string err;
  for (int i = 0; i < count; ++i) {
    const std::string filler(static_cast<std::size_t>(i % 211), 'x');
    out += "out " + std::to_string(i) + " " + filler + ".\n";
    err += "err " + std::to_string(i) + " " + filler + ".\n";
    if (out.size() > 5000 || i + 1 == count) {
      write_in_pieces(1, out, 1237);
      write_in_pieces(2, err, 739);
      out.clear();
      err.clear();
    }
  }
  return 0;
}

int signals() {
  sigset_t all;
  sigemptyset(&all);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&all, number);
  }
  sigprocmask(SIG_BLOCK, &all, nullptr);
  std::puts("ready");
  std::fflush(stdout);
  for (int stop = 0;;) {
    const timespec limit{stop != 0 ? 0 : 60, 500'000'000};
    const int got = sigtimedwait(&all, nullptr, &limit);
    if (got < 0) {
      return stop != 0 ? 128 + stop : 1;
    }
    std::printf("got %d\n", got);
    std::fflush(stdout);
    stop = stop == 0 && got != SIGUSR1 && got != SIGUSR2 ? got : stop;
  }
}

int descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && number != dirfd(folder)) {
      std::printf("%d\n", number);
    }
  }
  closedir(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  return what == "lines"         ? lines(std::atoi(argv[2]))
         : what == "signals"     ? signals()
         : what == "descriptors" ? descriptors()
                                 : 2;
}
