// A process that trains on command and answers with its resource use, in the format of ddp_ranks.hpp.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

namespace bench {

inline double written_of_process() {
  std::ifstream in("/proc/self/io");
  std::string key;
  double value = 0;
  while (in >> key >> value) {
    if (key == "wchar:") {
      return value;
    }
  }
  return 0;
}

inline double cpu_of(const rusage& used) {
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// Passes each line of the standard input, a number, to `train`; after the measurement, the function that it returns
/// computes the last value of the answer. Does not return: when the input ends, all ranks are here.
[[noreturn]] inline void train_on_lines(const std::function<std::function<double()>(int)>& train) {
  std::printf("ok\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const double written = written_of_process();
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const auto begin = std::chrono::steady_clock::now();
    const auto result = train(std::atoi(line));
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    getrusage(RUSAGE_SELF, &after);
    std::printf("ok %.9g %.9g %.0f %ld %.17g\n", wall, cpu_of(after) - cpu_of(before), written_of_process() - written,
                after.ru_nvcsw - before.ru_nvcsw, result());
    std::fflush(stdout);
  }
  _exit(0);
}

}  // namespace bench
