// Traces in Chrome's format, plain or gzip'd: their sums.
#include <danling/formats/trace.hpp>

#include <danling/core/error.hpp>

#include "memory_file.hpp"

namespace danling_fuzz {

// Of gzip a byte becomes a thousand, and each thirty of them may be an event.
const Allowance allowance{std::size_t{1} << 23, 400000};

void run(std::string_view input) {
  const MemoryFile file(input);
  const auto apart = danling::formats::read_trace(file.path(), {.by_shape = true});
  const auto whole = danling::formats::read_trace(file.path());
  std::int64_t calls = 0, calls_apart = 0;
  for (const auto& entry : whole.operators) {
    calls += entry.count;
  }
  for (const auto& entry : apart.operators) {
    calls_apart += entry.count;
  }
  require(calls == calls_apart && whole.steps.count == apart.steps.count, "the same calls, apart by shape or not");
  require(whole.wall_us >= 0, "time that does not run backwards");
  require(!danling::formats::to_json(whole).empty(), "sums as JSON");
}

}  // namespace danling_fuzz
