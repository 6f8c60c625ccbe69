// Counts allocator calls: preloaded into the counted processes of bench/recorded.cpp, so that timed processes run
// without.
#include "../tests/allocations/count.hpp"

extern "C" __attribute__((visibility("default"))) std::int64_t bench_allocations() { return allocations::count.load(); }
