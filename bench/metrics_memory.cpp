// The memory that GlobalMetrics take, relative to that of their data.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include <ATen/ATen.h>

#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>

#include "metrics_work.hpp"
#include "results.hpp"

namespace metrics_bench {
namespace {

double bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

}  // namespace

// Memory that the allocator uses for GlobalMetrics, at every update from a megabyte on.
void print_memory() {
  std::printf("\n%-72s %11s %11s %8s  %s\n", "memory of GlobalMetrics with AUROC, scores and labels of a batch",
              "MB kept", "MB taken", "at worst", "target");
  for (const std::int64_t rows : {64, 1024}) {
    const at::Tensor scores = at::rand({rows});
    const at::Tensor labels = at::randint(0, 2, {rows}, at::kLong);
    const double before = bytes_in_use();
    const auto metrics = dl::metrics::binary_metrics({}, {dl::metrics::binary_auroc()});
    double kept = 0;
    double taken = 0;
    double worst = 0;
    for (std::int64_t row = 0; row < 4'000'000; row += rows) {
      metrics->update(scores, labels);
      kept += static_cast<double>(scores.nbytes() + labels.nbytes());
      if (kept > 1e6 && row / rows % 16 == 0) {
        taken = bytes_in_use() - before;
        worst = std::max(worst, taken / kept);
      }
    }
    bench::record({.name = "memory of GlobalMetrics to that of its data, batches of " + std::to_string(rows),
                   .of = bench::median_interval({worst}),
                   .better = bench::Better::lower});
    std::printf("  %-70s %11.1f %11.1f %8.3f  at most 1.2: %s\n", ("batches of " + std::to_string(rows)).c_str(),
                kept / 1e6, taken / 1e6, worst, worst <= 1.2 ? "met" : "MISSED");
  }
}

}  // namespace metrics_bench
