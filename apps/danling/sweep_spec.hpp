// SweepSpec: the file of a sweep and the trials that it defines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace danling_command {

/// A key of the program's config and its possible values.
struct SweepParameter {
  enum class Kind { choice, integer, uniform, log_uniform };
  std::string key;
  Kind kind = Kind::choice;
  std::vector<std::string> values = {};  ///< values of a choice, as texts for the program
  double low = 0;                        ///< bounds of a range; both are inclusive for integers
  double high = 0;
};

/// The values of the keys for one trial, in the order of the file.
using TrialValues = std::vector<std::pair<std::string, std::string>>;

struct SweepSpec {
  enum class Method { grid, random, halving };

  Method method = Method::grid;
  std::vector<std::string> program;
  std::vector<SweepParameter> parameters;
  std::int64_t trials = 0;
  std::uint64_t seed = 0;
  std::string score;  ///< such as `val.acc`
  bool higher_is_better = false;
  std::int64_t max_failures = 5;
  // For halving:
  std::string resource = "epochs";
  std::vector<std::int64_t> goals;  ///< epochs or steps at the end of each rung
  std::int64_t factor = 3;

  /// Returns the values of trial `number` (from 0). They do not depend on process, machine or number of trials.
  TrialValues values_of(std::int64_t number) const;
};

const char* to_text(SweepSpec::Method method);

/// Reads the file; a `program` that is not empty replaces that of the file. @throws danling::ConfigError with file and
/// key
SweepSpec read_sweep_spec(const std::filesystem::path& file, const std::vector<std::string>& program);

}  // namespace danling_command
