// Declares a fuzz target: one function over bytes from any source, and the check that must hold for all inputs.
#pragma once

#include <cstddef>
#include <string_view>

namespace danling_fuzz {

/// Reads `input`. Each target defines it once. It may throw danling::Error with a message of one line, and nothing
/// else; what it reads it writes and reads again.
void run(std::string_view input);

/// The most memory that an input may take at a time: `base + per_byte * size`. Each target defines it once.
struct Allowance {
  std::size_t base;
  std::size_t per_byte;
};
extern const Allowance allowance;

/// Ends the process unless `holds`; `what` says what should.
void require(bool holds, std::string_view what);

/// run(), with the checks of its errors and its memory. Called by the fuzzer and by the replay of the corpus.
void check(const unsigned char* data, std::size_t size);

}  // namespace danling_fuzz
