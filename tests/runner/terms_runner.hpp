// TinyRunner with a loss of two terms, shared by the tests of losses.
#pragma once

#include "fixture.hpp"

namespace runner_test {

inline at::Tensor size_of(const at::Tensor& prediction, const at::Tensor&) { return prediction.square().mean(); }

inline dl::Losses two_terms() { return dl::Losses({{"ce", torch::nn::CrossEntropyLoss()}, {"size", size_of, 0.5}}); }

struct TermsRunner : TinyRunner {
  explicit TermsRunner(const TinyConfig& config) : TinyRunner(config) { criterion = two_terms(); }
  ~TermsRunner() override { close(); }
};

}  // namespace runner_test
