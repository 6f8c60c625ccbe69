// Reads the events of a trace that the summary needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace danling::inline v0::formats {

enum class TraceKind : std::uint8_t { op, runtime, range, kernel, memory };

struct TraceEvent {
  std::int64_t begin = 0, end = 0;  ///< nanoseconds
  std::int64_t amount = -1;         ///< FLOPs (-1: unknown); for a memory event its bytes
  std::uint32_t name = 0, shapes = 0;
  std::uint32_t track = 0;  ///< process and thread, or device and stream
  TraceKind kind = TraceKind::op;
  bool on_device = false;  ///< for a memory event
};

/// Maps texts to numbers; number 0 is the empty text.
class TraceNames {
 public:
  TraceNames() { find(""); }
  std::uint32_t find(std::string_view text);
  const std::string& operator[](std::uint32_t number) const { return *texts_[number]; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<const std::string*> texts_;
};

struct TraceEvents {
  std::vector<TraceEvent> events;
  TraceNames names;
  TraceNames tracks;    ///< `<process>\n<thread>`
  std::string cut_off;  ///< the reason why the rest was not read; else empty
};

/// @throws DataError if the file cannot be read or is not a trace
TraceEvents read_trace_events(const std::filesystem::path& path, bool by_shape);

/// Returns the FLOPs of a call with inputs of these sizes by the formulas of torch.profiler
/// (torch/csrc/profiler/util.cpp); -1 if it has no formula. @param values  texts of the inputs that are not tensors
std::int64_t trace_flops(std::string_view name, const std::vector<std::vector<std::int64_t>>& sizes,
                         const std::vector<std::string>& values);

}  // namespace danling::inline v0::formats
