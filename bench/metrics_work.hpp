// The work of bench/metrics.cpp: meters and metrics that danling and Python update or compute from the same data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metrics.hpp>

#include "peers.hpp"

namespace metrics_bench {

namespace dl = danling;
using bench::Peers;

/// One row of a table: danling or a peer.
struct Contestant {
  std::string name;
  std::function<double()> time;   ///< seconds per call
  std::function<double()> value;  ///< its result for the data
  /// danling must be this many times as fast; 0: no target.
  double ratio = 0;
  /// Permitted relative difference of the value.
  double tolerance = 1e-5;
  std::vector<double> seconds = {};
  std::string failure = {};
  bool peer = false;  ///< its ratio is recorded
};

/// A task of the benchmark. The first contestant is danling.
struct Work {
  std::string title;
  /// Maximum seconds for danling; 0: no target.
  double limit;
  std::vector<Contestant> contestants;
  bool headline = true;
};

/// All works, over random data that the Python process has too.
class Works {
 public:
  explicit Works(std::int64_t samples);
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;

  std::vector<Work>& list() { return works_; }

 private:
  void start_peers();
  Contestant peer(const std::string& name, const std::string& command, std::int64_t calls, double ratio);
  void add_meters();
  // Seconds per update, with batches in turn and new metrics each time.
  std::function<double()> updates(std::function<std::shared_ptr<dl::Metrics>()> make, std::int64_t calls) const;
  // Sum of the averages over all batches.
  std::function<double()> averages(std::function<std::shared_ptr<dl::Metrics>()> make) const;
  void add_metrics();
  void add_auroc();
  // A function of all data compared with Python's functions of that name; at least 0.1 ms.
  void add_function(const std::string& title, const std::string& command, std::int64_t calls,
                    std::function<at::Tensor()> compute, const std::vector<std::string>& peers,
                    double tolerance = 1e-5);
  void add_once();

  at::Tensor logits_;
  at::Tensor labels_;
  at::Tensor scores_;
  at::Tensor targets_;
  at::Tensor values_;
  at::Tensor predicted_;
  at::Tensor words_;
  at::Tensor word_ids_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::unique_ptr<Peers> peers_;
  std::vector<Work> works_;
};

/// Prints and records the memory that GlobalMetrics take.
void print_memory();

}  // namespace metrics_bench
