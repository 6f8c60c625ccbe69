// The settings of the program. Each is a key of config.yaml and an option of the command line.
#pragma once

#include <danling/runner/runner_config.hpp>

struct Config : danling::RunnerConfig {
  std::string root = "data";
  std::int64_t size = 32, channels = 16;

  Config() {  // the defaults of this program; config.yaml overrides them
    seed = 1;
    epochs = 10;
    score_name = "acc";
    dataloader.batch_size = 16;
    dataloader.num_workers = 2;
    optim.type = "adamw";
    optim.lr = 1e-2;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(danling::Fields& f) override {
    f("root", root, "folder of train/CLASS/*.png (or .jpg) and val/CLASS/*.png; absent: shapes").non_semantic();
    f("size", size, "height and width of an image for the model").at_least(8);
    f("channels", channels, "of the first convolution; the second has twice as many").at_least(1);
  }
};
