// The model: a small convolutional network for images of any size.
#pragma once

#include <torch/torch.h>

#include "config.hpp"

struct NetImpl : torch::nn::Module {
  NetImpl(const Config& config, std::int64_t num_classes) {
    using namespace torch::nn;
    const std::int64_t c = config.channels;
    const auto convolution = [](std::int64_t in, std::int64_t out) {
      return Conv2d(Conv2dOptions(in, out, 3).padding(1));
    };
    body = register_module("body", Sequential(convolution(1, c), ReLU(), MaxPool2d(2), convolution(c, 2 * c), ReLU(),
                                              AdaptiveAvgPool2d(4), Flatten()));
    head = register_module("head", Linear(2 * c * 4 * 4, num_classes));
  }

  torch::Tensor forward(torch::Tensor images) {   // [N, 1, size, size]
    return head->forward(body->forward(images));  // [N, classes]: the logits
  }

  torch::nn::Sequential body = nullptr;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Net);
