// Options of optimizers, including those without a default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/options.hpp>

namespace danling::inline v0::optim::detail {

struct KnownOptions {
  std::string_view optimizer;
  const OptimizerOptions& defaults;
  std::vector<std::string> unset;  ///< additional options, without a default

  /// In the order of the field list.
  std::vector<std::string> keys() const;
  /// @throws ConfigError at `where` for a set option that is not known.
  void check(std::string_view where, const OptimizerOptions& given) const;
  /// Returns `given` after this check, with unset options filled from the defaults.
  OptimizerOptions complete(OptimizerOptions given) const;
};

const KnownOptions& muon_options();
const KnownOptions& lbfgs_options();

/// @throws ConfigError unless `value` is finite and at least 0.
void expect_not_negative(std::string_view optimizer, std::string_view key, double value);
/// @throws ConfigError unless both are at least 0 and below 1.
void expect_betas(std::string_view optimizer, std::string_view key, const std::pair<double, double>& betas);

}  // namespace danling::inline v0::optim::detail
