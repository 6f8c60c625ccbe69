// Stands for Gloo's header, which LibTorch includes and does not ship: what LibTorch's inline code names.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
