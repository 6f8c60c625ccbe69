// The model: a multilayer perceptron.
#pragma once

#include <torch/torch.h>

#include "config.hpp"

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Config& config) {
    std::int64_t features = 2;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      body->push_back(torch::nn::Linear(features, config.hidden));
      body->push_back(torch::nn::ReLU());
      features = config.hidden;
    }
    register_module("body", body);
    head = register_module("head", torch::nn::Linear(features, 2));
  }

  torch::Tensor forward(torch::Tensor points) {   // [N, 2]
    return head->forward(body->forward(points));  // [N, 2]: the logits of the classes
  }

  torch::nn::Sequential body;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Net);
