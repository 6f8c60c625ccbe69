// The file of a sweep and the trials that it defines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace danling_command {

/// A key of the program's config and the values that it may have.
struct SweepParameter {
  enum class Kind { choice, integer, uniform, log_uniform };
  std::string key;
  Kind kind = Kind::choice;
  std::vector<std::string> values = {};  ///< of a choice, as the program reads them
  double low = 0;                        ///< bounds of a range; those of an integer are both included
  double high = 0;
};

/// Values of the keys for one trial, in the order of the file.
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
  // Of halving:
  std::string resource = "epochs";
  std::vector<std::int64_t> goals;  ///< epochs or steps of each rung
  std::int64_t factor = 3;

  /// Of trial `number`, counted from 0: the same in every process and on every machine, however many trials there are.
  TrialValues values_of(std::int64_t number) const;
};

const char* to_text(SweepSpec::Method method);

/// Reads the file; words of `program` replace those of the file. @throws danling::ConfigError with file and key
SweepSpec read_sweep_spec(const std::filesystem::path& file, const std::vector<std::string>& program);

}  // namespace danling_command
