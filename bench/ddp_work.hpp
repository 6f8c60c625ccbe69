// Models, data and the measured process of the data parallel benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

/// A model and its data. The Python side builds the same model by `name`.
struct Workload {
  std::string name;   ///< mlp, small or encoder
  std::string title;  ///< title in tables
  std::int64_t batch_size;
  int block_steps;  ///< number of steps per measured block
  int quick_steps;
};

const std::vector<Workload>& workloads();
const Workload& workload(const std::string& name);

/// Writes the initial weights and the samples, which every contestant reads. Returns the bytes of all weights.
std::int64_t write_inputs(const std::string& workload, const std::string& folder);

/// Resources that one process used for the steps of a block.
struct Block {
  double seconds = 0;
  double cpu_seconds = 0;  ///< of all threads, in user and kernel mode
  double written = 0;      ///< bytes, by system calls: to sockets
  double sleeps = 0;       ///< voluntary context switches of its threads
  double loss = 0;         ///< of the last step
};

/// The measured process: trains by dl::run. Each line of the standard input is a number of steps; it answers each with
/// a line. `arguments`: the workload, the folder of its inputs, options of the config.
int train_on_command(const std::vector<std::string>& arguments);

}  // namespace bench
