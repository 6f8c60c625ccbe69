// Stack traces of all threads of this process, and the names of their functions.
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

/// Loads the code that a signal handler needs and may not load itself. Called before the trouble, once or more often.
void prepare_stack_traces();

/// Interrupts every other thread for a moment by a real-time signal that has no handler; its handler stays. A thread
/// that blocks all signals, or does not run within `limit`, has a `problem` in place of frames.
std::vector<ThreadTrace> capture_stack_traces(std::chrono::milliseconds limit);

/// Function, offset and file of an address of code: `step(int) + 0x1c (./train)`. Functions without a dynamic symbol
/// are looked up in the file's symbol table; in a stripped file the text is its name and the offset in it.
/// @param returns  the address is one to return to, which is behind the call
std::string symbol_text(const void* address, bool returns);

/// One line per frame below a line per thread. `first` comes first, as "the loop"; threads with equal traces, such as
/// those of a pool, share one.
std::string traces_text(const std::vector<ThreadTrace>& traces, pid_t first);

}  // namespace danling::inline v0::detail
