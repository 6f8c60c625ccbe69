// Loader benchmarks without Python: workers against processes, time that steps wait for data, memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace bench {

class Peers;

/// to[i] = from[i] * scale + shift, in the machine's widest vectors.
void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift);

/// Two processes that each read half of the records on command.
class Processes {
 public:
  Processes();
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Seconds until both have read `records` / 2 each, with a transform that computes `rounds` rounds per sample, or
  /// sleeps for 1 ms per sample if `rounds` is 0.
  double read(std::int64_t records, std::int64_t rounds);

 private:
  struct Process {
    pid_t id = -1;
    std::FILE* to = nullptr;
    std::FILE* from = nullptr;
  };
  Process processes_[2];
};

/// Compares one thread, two workers and two processes, with a transform of 1 ms per sample.
void measure_workers(Processes& processes, int rounds, bool quick);
/// Measures how long steps wait for their batch if a step takes longer than reading a batch.
void measure_waits(int rounds, bool quick);
/// CSV and JSON lines compared with pandas, pyarrow and Python's json; without `peers` their rows are skipped.
void measure_text(Peers* peers, int rounds, bool quick);
/// Counts the batches that are in memory at the same time, by prefetch depth.
void measure_memory(bool quick);

}  // namespace bench
