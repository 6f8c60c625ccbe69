// The runner: the model, its data, its loss and its metrics.
#pragma once

#include <danling/runner/torch_runner.hpp>

#include "config.hpp"

class Runner : public danling::TorchRunner {
 public:
  explicit Runner(const Config& config);
  ~Runner() override { close(); }  // waits for files that are being written
};
