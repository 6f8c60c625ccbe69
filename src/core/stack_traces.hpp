// Captures the stack traces of all threads of this process and names their functions.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace danling::inline v0::detail {

struct ThreadTrace {
  pid_t thread = 0;
  std::string name;
  std::vector<void*> frames;  ///< addresses, innermost first
  std::string problem;        ///< why there are no frames
};

/// Loads code that the signal handler needs but must not load. Call it at least once before capture_stack_traces().
void prepare_stack_traces();

/// Interrupts every other thread by a real-time signal that has no handler; the new handler stays installed. A thread
/// that blocks all signals or does not run within `limit` has a `problem` instead of frames.
std::vector<ThreadTrace> capture_stack_traces(std::chrono::milliseconds limit);

/// Returns function, offset and file of a code address: `step(int) + 0x1c (./train)`. Looks functions without a dynamic
/// symbol up in the file's symbol table. For a stripped file it returns the file name and the offset in the file.
/// @param returns  `address` is a return address, which lies behind the call
std::string symbol_text(const void* address, bool returns);

/// Formats one line per thread and, below it, one line per frame. Thread `first` comes first, as "the loop"; threads
/// with equal traces, such as those of a pool, share one trace.
std::string traces_text(const std::vector<ThreadTrace>& traces, pid_t first);

}  // namespace danling::inline v0::detail
