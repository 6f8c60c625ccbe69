// Stands for Gloo's header, which LibTorch includes and does not ship: the names in LibTorch's inline code.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
