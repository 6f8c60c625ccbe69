// Interruptions of a run: kinds, the windows of a save, and the plan that draws them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "verify_resume_start.hpp"

namespace danling_command {

enum class FaultKind { kill, save, term, interrupt, size, full, io, readonly, quota, brief };

struct FaultName {
  FaultKind kind;
  std::string_view name;  ///< name in --faults
  std::string_view text;  ///< text in the report
  int weight;             ///< weight in the random draw
};

/// All kinds, in the order of the report.
const std::vector<FaultName>& fault_names();
/// Parses a list such as "kill,term". @throws danling::ConfigError for an unknown kind, with the nearest known one
std::vector<FaultKind> parse_faults(std::string_view text);

/// A kind of file call in a run. Kills before each kind cover every moment of a save.
struct Window {
  std::string call;
  std::string glob;  ///< glob of the file, for a rule
  bool checkpoint = false;
  int rank = -1;           ///< the only rank that makes the call; -1: any
  std::int64_t calls = 0;  ///< number of calls in the reference run
  std::int64_t hits = 0;
  bool operator==(const Window& other) const { return call == other.call && glob == other.glob; }
};

/// A planned interruption.
struct Fault {
  FaultKind kind = FaultKind::kill;
  std::string rules;
  std::optional<std::uint64_t> size;
  Blow blow;
  std::string text;  ///< description for --verbose and reports
  /// True if the program gets an error that it may report; false if it is stopped from outside.
  bool is_error() const;
};

/// Measurements of the reference run for the plan.
struct ReferenceTimes {
  double seconds = 0;
  double began = 0;  ///< seconds until the first file call
  std::uint64_t largest_file = 0;
  std::uint64_t checkpoint = 0;  ///< bytes of the last one
};

class FaultPlan {
 public:
  /// `checkpoint_dir` is the name of the folder of the checkpoints.
  FaultPlan(std::vector<FaultKind> kinds, std::uint64_t seed, const std::vector<FileCall>& reference,
            ReferenceTimes times, const std::string& checkpoint_dir);

  /// Draws the next interruption of so many processes (0: the program without `danling launch`). `must_advance`: not
  /// before one save.
  Fault next(bool must_advance, int processes);
  /// Draws one of `count` layouts, different from `last` if possible; nullopt if there are none.
  std::optional<std::size_t> draw_layout(std::size_t count, std::optional<std::size_t> last);
  /// Records which windows the calls of a start hit.
  void note(const std::vector<FileCall>& calls);
  /// Windows of checkpoint files.
  std::vector<Window> checkpoint_windows() const;

 private:
  double uniform(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  std::int64_t whole(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  Window window_of(const FileCall& call) const;
  FaultKind draw_kind();
  Fault draw(bool must_advance, int processes);
  void strike_at_random(Fault& fault, int signal);
  void aim(Fault& fault, std::string_view what, const std::vector<std::string_view>& calls, int processes);

  std::vector<FaultKind> kinds_;
  std::vector<FaultKind> deck_;
  std::mt19937_64 random_;
  std::vector<Window> windows_;
  ReferenceTimes times_;
  std::string checkpoint_dir_;
  std::int64_t calls_ = 0;
  std::int64_t writes_ = 0;
};

}  // namespace danling_command
