// Metrics over a batch type of the user's own.
#include <danling/metrics/batch_metric.hpp>

#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace batch_metric_test {

using danling::BatchMetric;
using danling::BatchMetrics;
using danling::DatasetMetric;
using danling::MetricError;
using danling::MetricValue;
using danling_test::error_of;

/// A batch without `input` and `target`: boxes that were found, and their scores.
struct Boxes {
  at::Tensor overlap;
  std::int64_t images = 0;
};
std::int64_t batch_size(const Boxes& batch) { return batch.images; }

/// One value per image.
struct Overlap : BatchMetric<Boxes> {
  bool higher_better() const override { return true; }
  MetricValue compute(const Boxes& batch) override { return batch.overlap; }
};

/// One value for the batch.
struct Misses : BatchMetric<Boxes> {
  bool higher_better() const override { return false; }
  MetricValue compute(const Boxes& batch) override { return batch.overlap.lt(0.5).to(at::kDouble).mean(); }
};

Boxes boxes(const std::vector<double>& overlap) {
  return {at::tensor(overlap, at::kDouble), static_cast<std::int64_t>(overlap.size())};
}

TEST_CASE("DatasetMetric: resets, updates and evaluates over values per sample and per batch", "[metrics]") {
  DatasetMetric<Boxes> overlap(std::make_shared<Overlap>());
  CHECK(std::isnan(overlap.eval()));
  overlap.update(boxes({0.2, 0.4, 0.9}));
  overlap.update(boxes({0.5}));
  CHECK(overlap.eval() == Approx(0.5).epsilon(1e-14));
  CHECK(overlap.val() == 0.5);
  CHECK(overlap.count() == 4);
  CHECK(overlap.higher_is_better() == true);
  overlap.reset();
  CHECK(overlap.count() == 0);

  // A value for the batch counts as that of each of its samples.
  DatasetMetric<Boxes> misses(std::make_shared<Misses>());
  misses.update(boxes({0.2, 0.4, 0.9}));
  misses.update(boxes({0.5}));
  CHECK(misses.eval() == Approx(0.5).epsilon(1e-14));
  CHECK(misses.higher_is_better() == false);
}

TEST_CASE("DatasetMetric: called with a batch it updates and gives the average so far, as t3w's forward", "[metrics]") {
  DatasetMetric<Boxes> overlap(std::make_shared<Overlap>());
  CHECK(overlap(boxes({0.25, 0.75})) == 0.5);
  CHECK(overlap(boxes({1.0, 1.0})) == 0.75);
  CHECK(overlap.count() == 4);
}

TEST_CASE("DatasetMetric: a tensor that has not one value per sample is refused", "[metrics]") {
  DatasetMetric<Boxes> overlap(std::make_shared<Overlap>());
  CHECK(error_of<MetricError>([&] { overlap.update({at::full({3}, 1.0), 2}); }) ==
        "[batch_metric.compute] expected one value per sample, 2, or one for the batch, got Float [3]");
  CHECK(error_of<MetricError>([] { DatasetMetric<Boxes>(nullptr); }) ==
        "[dataset_metric.create] expected a metric, got none");
}

TEST_CASE("BatchMetrics: are metrics by name, with their directions and state", "[metrics]") {
  const auto make = [] {
    return BatchMetrics<Boxes>({{"overlap", std::make_shared<Overlap>()}, {"misses", std::make_shared<Misses>()}});
  };
  BatchMetrics<Boxes> metrics = make();
  metrics.update(boxes({0.2, 0.4, 0.9}));
  metrics.update(boxes({0.5}));
  CHECK(metrics.text(2) == "overlap: 0.50 (0.50)\tmisses: 0.00 (0.50)");
  CHECK(metrics.higher_is_better("overlap") == true);
  CHECK(metrics.higher_is_better("misses") == false);
  CHECK_FALSE(metrics.higher_is_better("other").has_value());
  BatchMetrics<Boxes> second = make();
  second.load_state_dict(danling::clone(metrics.state_dict()));
  second.update(boxes({1.0}));
  metrics.update(boxes({1.0}));
  CHECK(danling::first_difference(second.state_dict(), metrics.state_dict()).empty());
}

TEST_CASE("BatchMetrics: over ranks they equal one process with all samples", "[metrics]") {
  const std::vector<std::vector<double>> parts = {{0.2, 0.4, 0.9}, {}, {0.7}};
  const auto texts = danling_test::run_ranks(3, [&](const danling::Group& group) {
    BatchMetrics<Boxes> metrics({{"overlap", std::make_shared<Overlap>()}, {"misses", std::make_shared<Misses>()}});
    const auto& mine = parts[static_cast<std::size_t>(group.rank())];
    if (!mine.empty()) {
      metrics.update(boxes(mine));
    }
    metrics.synchronize(group);
    danling_test::expect(std::abs(metrics.at("overlap").eval() - 0.55) < 1e-14, "the mean over four samples");
    return metrics.average().text(12);
  });
  danling_test::check_ranks(texts, "overlap: 0.550000000000\tmisses: 0.500000000000");
}

}  // namespace batch_metric_test
