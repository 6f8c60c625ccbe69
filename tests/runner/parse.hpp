// Parses options as a command line does, shared by the tests of RunnerConfig.
#pragma once

#include <danling/config/tree.hpp>
#include <danling/runner/runner_config.hpp>

#include "fixture.hpp"

namespace runner_test {

using dl::ConfigError;
using dl::RunnerConfig;

template <class... Words>
std::string error_of_options(const Words*... words) {
  RunnerConfig config;
  const char* argv[] = {"program", words...};
  return error_of<ConfigError>([&] { (void)danling::parse(config, 1 + sizeof...(words), argv); });
}

template <class C, class... Words>
void parse_options(C& config, const Words*... words) {
  const char* argv[] = {"program", words...};
  REQUIRE_FALSE(danling::parse(config, 1 + sizeof...(words), argv));
}

}  // namespace runner_test
