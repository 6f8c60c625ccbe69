// danling ckpt diff and convert as functions, and checkpoints for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <danling/state/state.hpp>

#include <apps/command.hpp>

namespace ckpt_commands {

using danling::State;
using danling_test::CommandResult;
using danling_test::run_danling;

inline std::string convert_golden(const std::string& name) {
  return (std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / name).string();
}

inline CommandResult ckpt_diff(const std::filesystem::path& a, const std::filesystem::path& b,
                               std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"ckpt", "diff", a.string(), b.string()});
  return run_danling(options);
}

inline CommandResult ckpt_convert(const std::filesystem::path& in, const std::filesystem::path& out,
                                  std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"ckpt", "convert", in.string(), out.string()});
  return run_danling(options);
}

inline State convert_weights() {
  State out;
  const at::Tensor weight = at::arange(12, at::kFloat).div(7).reshape({3, 4});
  out["fc.weight"] = weight;
  out["fc.tied"] = weight;
  out["fc.transposed"] = weight.t();
  out["counter"] = at::scalar_tensor(std::int64_t{7}, at::kLong);
  out["mask"] = at::arange(2).eq(0);
  return out;
}

inline State convert_run() {
  State out;
  out["model"] = convert_weights();
  out["ema"]["fc.weight"] = at::ones({3, 4});
  out["optimizer"]["state"][0]["step"] = at::scalar_tensor(3.0);
  out["state"]["train"]["epoch"] = 3;
  return out;
}

}  // namespace ckpt_commands
