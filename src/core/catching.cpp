#include <danling/core/catching.hpp>

#include <cstdio>

namespace danling::inline v0 {

void print_error(const std::exception& error) { std::fprintf(stderr, "error: %s\n", error.what()); }

}  // namespace danling::inline v0
