// Parts of the benchmark of loaders that need no peers: workers beside processes, waiting for data, memory.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace bench {

class Peers;

/// to[i] = from[i] * scale + shift, in the widest vectors that the machine has.
void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift);

/// Two processes that each read half of the records, when told.
class Processes {
 public:
  Processes();
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Seconds until both have read `records` / 2 each with a transform that costs 1 ms per sample: busy for `rounds` of
  /// the work that keeps a core busy, or, with 0, asleep.
  double read(std::int64_t records, std::int64_t rounds);

 private:
  struct Process {
    pid_t id = -1;
    std::FILE* to = nullptr;
    std::FILE* from = nullptr;
  };
  Process processes_[2];
};

/// A transform of 1 ms per sample: one thread, two workers, two processes.
void measure_workers(Processes& processes, int rounds, bool quick);
/// How long a step that is longer than its batch waits for it.
void measure_waits(int rounds, bool quick);
/// CSV and JSON lines beside pandas, pyarrow and Python's json, whose rows are left out without `peers`.
void measure_text(Peers* peers, int rounds, bool quick);
/// Batches that live at the same time, by depth of prefetching.
void measure_memory(bool quick);

}  // namespace bench
