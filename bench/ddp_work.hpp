// Models, data and the measured process of the benchmark of data parallel training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

/// A model with its data. The Python side builds the same one by `name`.
struct Workload {
  std::string name;   ///< mlp, small or encoder
  std::string title;  ///< for the tables
  std::int64_t batch_size;
  int block_steps;  ///< measured at once
  int quick_steps;
};

const std::vector<Workload>& workloads();
const Workload& workload(const std::string& name);

/// Writes the first weights and the samples, which every contestant reads. Returns the bytes of all weights.
std::int64_t write_inputs(const std::string& workload, const std::string& folder);

/// What one process used for the steps of one block.
struct Block {
  double seconds = 0;
  double cpu_seconds = 0;  ///< of all threads, in user and kernel mode
  double written = 0;      ///< bytes, by system calls: to sockets
  double sleeps = 0;       ///< times that a thread gave its core away to wait
  double loss = 0;         ///< of the last step
};

/// The measured process: trains by dl::run in blocks of as many steps as each line of the standard input says, and
/// answers each with a line. `arguments`: the workload, the folder of its inputs, options of the config.
int train_on_command(const std::vector<std::string>& arguments);

}  // namespace bench
