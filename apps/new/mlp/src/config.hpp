// The settings of the program. Each is a key of config.yaml and an option of the command line.
#pragma once

#include <danling/runner/runner_config.hpp>

struct Config : danling::RunnerConfig {
  std::int64_t points = 2000;
  double noise = 0.02;
  std::int64_t hidden = 64, layers = 2;

  Config() {  // the defaults of this program; config.yaml overrides them
    seed = 1;
    epochs = 20;
    score_name = "acc";
    dataloader.batch_size = 32;
    optim.type = "adamw";
    optim.lr = 1e-2;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(danling::Fields& f) override {
    f("points", points, "points of both spirals").at_least(10);
    f("noise", noise, "standard deviation of a point's distance from its spiral").at_least(0);
    f("hidden", hidden, "features of a hidden layer").at_least(1);
    f("layers", layers, "hidden layers").at_least(1);
  }
};
