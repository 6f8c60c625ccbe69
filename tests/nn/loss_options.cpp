#include <c10/util/Logging.h>  // before the test framework, whose CHECK it would replace

#include <danling/nn/losses.hpp>

#include <support/error.hpp>

namespace nn_test {

using danling::ConfigError;
using danling_test::error_of;
namespace nn = danling::nn;

TEST_CASE("losses: an option that a loss does not have, or a value out of range, is refused", "[nn]") {
  CHECK(error_of<ConfigError>([] { nn::FocalLoss({.alpha = 0.25}); }) ==
        "[loss.build] expected options of focal (reduction, ignore_index, gamma, class_weights), got 'alpha'");
  CHECK(error_of<ConfigError>([] { nn::losses().at("mse")({.gamma = 2.0}); }) ==
        "[loss.build] expected options of mse (reduction), got 'gamma'");
  CHECK(error_of<ConfigError>([] { nn::CrossEntropyLoss({.label_smoothing = 1.5}); }) ==
        "[loss.build] expected label_smoothing from 0 to 1, got 1.5");
  CHECK(error_of<ConfigError>([] { nn::SigmoidFocalLoss({.gamma = -1.0}); }) ==
        "[loss.build] expected gamma of at least 0, got -1.0");
  CHECK(error_of<ConfigError>([] { nn::losses().at("focl"); }) ==
        "[loss.build] expected one of binary_cross_entropy, cross_entropy, focal, l1, mse, sigmoid_focal, got 'focl'; "
        "did you mean 'focal'?");
}

}  // namespace nn_test
