// Models, data and loops of bench/recorded.cpp.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace bench::recorded {

struct Work {
  std::string name, title;
  std::string model;  ///< mlp, net or encoder
  std::int64_t hidden = 0;
  std::int64_t batch_size = 64;
  std::string optim = "sgd";
  double lr = 0.01;
  int block_steps = 64;
  int rounds = 28;
  bool dropout = false;
};

const std::vector<Work>& works();
/// @throws std::runtime_error that lists the names when the name is unknown
const Work& work(const std::string& name);

/// Samples in memory, and views of them as batches: a loader would have no work left.
struct Data {
  struct Batch {
    at::Tensor input, target;
  };
  at::Tensor input, target;
  std::vector<Batch> batches;
};
Data make_data(const Work& work);
/// Writes the samples and the initial weights, in the order of their names, for recorded_peers.py.
void write_inputs(const Work& work, const Data& data, const std::string& folder);

enum class Kind {
  torch_optim,  ///< a bare loop with torch::optim
  bare,         ///< a bare loop with the runner's optimizer
  eager,        ///< the runner
  recorded,     ///< the runner with compile.enable
};

/// Training of a model, some steps at a time. All loops begin with the same weights, batches and random numbers.
class Loop {
 public:
  explicit Loop(const Data& data);
  virtual ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Trains with this loop's random numbers. Returns seconds per step.
  double train(int steps);
  /// Number of replayed steps.
  virtual std::int64_t replayed() const { return 0; }

  std::vector<float> losses;  ///< of all steps

 protected:
  /// Returns the loss.
  virtual float step(const Data::Batch& batch) = 0;

 private:
  const Data& data_;
  std::size_t step_ = 0;
  at::Tensor generator_state_;
};

/// @param num_steps  number of losses to reserve; growing memory would change addresses
std::unique_ptr<Loop> make_loop(Kind kind, const Work& work, const Data& data, const std::string& folder,
                                std::int64_t num_steps);

/// Applies the process settings of dl::run, and one thread.
void set_up_process();

/// Number of steps after which the recording is complete.
constexpr int first_steps(bool quick) { return quick ? 24 : 40; }

/// The counted process: writes the counts of one loop to stdout, for `read_counts`.
int count(Kind kind, const Work& work, const std::string& folder, bool quick);

struct Counts {
  double first_seconds = 0;   ///< total of the first steps
  double step_seconds = 0;    ///< per step, after them
  double allocations = 0;     ///< per step; negative: not counted
  double growth = 0;          ///< bytes from before the loop to the peak of the process
  double replayed_share = 0;  ///< of the later steps
};
Counts read_counts(std::FILE* in);

}  // namespace bench::recorded
