#include <optim/known_options.hpp>

#include <algorithm>
#include <cmath>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

#include <optim/known.hpp>

namespace danling::inline v0::optim::detail {

std::vector<std::string> KnownOptions::keys() const {
  std::vector<std::string> out = assigned_keys(defaults);
  out.insert(out.end(), unset.begin(), unset.end());
  return out;
}

void KnownOptions::check(std::string_view where, const OptimizerOptions& given) const {
  expect_known(std::string(where), optimizer, assigned_keys(given), keys());
}

OptimizerOptions KnownOptions::complete(OptimizerOptions given) const {
  check(concat(optimizer, ".options"), given);
  inherit(given, defaults);
  return given;
}

void expect_not_negative(std::string_view optimizer, std::string_view key, double value) {
  danling::detail::check<ConfigError>(value >= 0 && std::isfinite(value), concat(optimizer, ".options"), "expected ",
                                      key, " to be 0 or more, got ", value);
}

void expect_betas(std::string_view optimizer, std::string_view key, const std::pair<double, double>& betas) {
  for (const double beta : {betas.first, betas.second}) {
    danling::detail::check<ConfigError>(beta >= 0 && beta < 1, concat(optimizer, ".options"), "expected ", key,
                                        " from 0 to below 1, got ", beta);
  }
}

}  // namespace danling::inline v0::optim::detail
