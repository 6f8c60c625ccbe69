// Meters over real processes.
#include <cmath>
#include <memory>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace synchronize_test {

using danling::AverageMeter;
using danling::AverageMeters;
using danling::Group;
using danling::MetricError;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;

bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const MetricError& error) {
    return error.what();
  }
  return "no error";
}

/// The samples of one data set, and the range of each rank: unequal ranges, and none for rank 1.
double sample(int index) { return std::sin(index) * 1e3 + 0.1; }
int first_of(int rank) { return rank <= 1 ? rank * 17 : 17 + (rank - 1) * 29; }
int end_of(int rank) { return rank == 1 ? first_of(1) : rank == 0 ? 17 : first_of(rank) + 29; }

/// Calls `update` with each sample of the rank.
template <class Update>
void feed(int rank, Update update) {
  for (int index = first_of(rank); index < end_of(rank); ++index) {
    update(index);
  }
}

TEST_CASE("AverageMeter: over ranks with unequal counts, and one without any, it equals one process with all samples",
          "[metrics]") {
  for (const bool tensors : {false, true}) {
    for (const int size : {2, 4}) {
      AverageMeter whole;
      const auto update = [&](AverageMeter& meter, int index) {
        const double value = sample(index);
        tensors ? meter.update(at::tensor({value, -value}, at::kDouble), index % 3) : meter.update(value, index % 3);
      };
      for (int rank = 0; rank < size; ++rank) {
        feed(rank, [&](int index) { update(whole, index); });
      }
      const auto texts = run_ranks(size, [&](const Group& group) {
        AverageMeter meter;
        feed(group.rank(), [&](int index) { update(meter, index); });
        const auto own = danling::clone(meter.state_dict());
        meter.synchronize(group);
        expect(danling::first_difference(meter.state_dict(), own).empty(), "a state that stays the rank's own");
        expect(meter.count() == whole.count(), "the count of all ranks");
        const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
          return a.sizes() == b.sizes() && a.sub(b).abs().le(b.abs().mul(1e-12)).all().item().toBool();
        };
        expect(same(meter.average_tensor(), whole.average_tensor()), "the average over all samples");
        expect(same(meter.sum_tensor(), whole.sum_tensor()), "the sum over all samples");
        // The same bits everywhere.
        const at::Tensor average = meter.average_tensor().reshape({-1});
        return concat(average[0].item().toDouble(), " ", meter.n());
      });
      for (const auto& text : texts) {
        CHECK(text == texts.front());
        CHECK_THAT(text, !ContainsSubstring("error"));
      }
    }
  }
}

TEST_CASE("AverageMeter: what is known of all ranks lasts until the next update, reset or load", "[metrics]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    const bool first = group.rank() == 0;
    AverageMeter meter;
    meter.update(first ? 1.0 : 4.0, first ? 1 : 3);
    meter.update(first ? 2.0 : 8.0, first ? 3 : 1);
    expect(meter.bat() == (first ? 2 : 8), "the last value before");
    for (int twice = 0; twice < 2; ++twice) {
      meter.synchronize(group);
      expect(meter.val() == (first ? 2 : 8), "the rank's own last value");
      expect(meter.bat() == 14.0 / 4, "the average of the last values");
      expect(meter.avg() == 27.0 / 8 && meter.sum() == 27, "the average and sum over ranks");
      expect(meter.n() == 4 && meter.count() == 8, "the weights over ranks");
    }
    AverageMeter copy = meter;
    expect(copy.avg() == 27.0 / 8, "a copy to know it too");
    expect(meter.text(2) == (first ? "2.00 (3.38)" : "8.00 (3.38)"), "the text");
    meter.update(2.0);
    expect(meter.avg() == (first ? 9.0 / 5 : 22.0 / 5) && meter.count() == 5, "an update to end it");
    expect(copy.avg() == 27.0 / 8, "the copy to keep it");
    meter.synchronize(group);
    expect(meter.avg() == 31.0 / 10 && meter.n() == 2, "updates after it to count");
    meter.load_state_dict(meter.state_dict());
    expect(meter.count() == 5, "a load to end it");
    copy.reset();
    expect(copy.count() == 0 && std::isnan(copy.avg()), "a reset to end it");
    meter.synchronize(group);
    meter.update(at::tensor(1.0));
    expect(meter.count() == 6, "a tensor's update to end it");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("AverageMeter: reading on one rank does not wait for the others", "[metrics]") {
  const auto texts = run_ranks(
      2,
      [](const Group& group) {
        AverageMeter meter;
        meter.update(1.0);
        meter.synchronize(group);
        if (group.rank() == 0) {
          static_cast<void>(meter.text());
          static_cast<void>(meter.avg() + meter.bat());
          meter.update(2.0);
          static_cast<void>(meter.batch());
        }
        meter.synchronize(group);
        return danling::to_text(meter.avg());
      },
      std::chrono::seconds(10));
  check_ranks(texts, danling::to_text(4.0 / 3));
}

TEST_CASE("AverageMeter: without any value on any rank it is nan", "[metrics]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    AverageMeter meter;
    meter.update(3.0, 0);
    meter.synchronize(group);
    expect(std::isnan(meter.avg()) && std::isnan(meter.bat()), "nan");
    return concat(meter.sum(), " ", meter.count(), " ", meter.n());
  });
  check_ranks(texts, "0.0 0 0");
}

TEST_CASE("AverageMeters: ranks may have different meters in a different order", "[metrics]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    AverageMeters meters;
    const double mine = group.rank();
    switch (group.rank()) {
      case 0:
        meters.update({{"loss", mine, 2}, {"norms", at::full({2}, 1.0, at::kDouble)}});
        break;
      case 1:
        meters.update({{"late", mine}, {"loss", mine}});
        break;
      case 3:
        meters.update({{"norms", at::full({2}, 3.0, at::kDouble), 3}});
        meters["late"].update(NAN, 0);
        break;
      default:
        break;
    }
    meters.synchronize(group);
    expect(meters.size() == 3, "the meters of all ranks");
    expect(meters.at("loss").avg() == 1.0 / 3 && meters.at("loss").count() == 3, "the loss of all ranks");
    expect(std::get<std::vector<double>>(*meters.average().find("norms")) == std::vector<double>{2.5, 2.5},
           "the norms of all ranks");
    expect(meters.at("late").bat() == 1 && meters.at("late").n() == 1, "the late one");
    meters.reset();
    expect(meters.at("loss").count() == 0, "a reset to forget");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("AverageMeters: scalars and tensors, or tensors of other shapes, are the same error on all ranks",
          "[metrics]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    AverageMeters meters;
    meters.update({{"loss", 1.0}});
    if (group.rank() >= 2) {
      meters.update({{"norms", at::full({group.rank()}, 1.0)}});
    }
    std::string out = refusal([&] { meters.synchronize(group); }) + "\n";
    expect(meters.at("loss").count() == 1, "nothing to change");
    AverageMeter meter;
    group.rank() == 1 ? meter.update(at::full({2, 3}, 1.0)) : meter.update(1.0);
    out += refusal([&] { meter.synchronize(group); });
    return out;
  });
  check_ranks(texts,
              "[average_meters.synchronize] expected values of 'norms' alike on all ranks, got a tensor of shape [2] "
              "on rank 2 and a tensor of shape [3] on rank 3\n"
              "[average_meter.synchronize] expected values alike on all ranks, got a scalar on rank 0 and a tensor of "
              "shape [2, 3] on rank 1");
}

TEST_CASE("StreamMetrics: over ranks it equals one process; other metrics on a rank are the same error on all",
          "[metrics]") {
  const auto make = [](bool more) {
    auto metrics = std::make_unique<danling::StreamMetrics>(std::vector<danling::StreamMetrics::Entry>{
        {"acc", danling::metrics::multiclass_accuracy(3, {.average = danling::metrics::Average::micro})},
        {"mean", [](const at::Tensor& prediction, const at::Tensor&) {
           return danling::MetricValue(prediction.to(at::kDouble).mean(0));
         }}});
    if (more) {
      metrics->add({"more", danling::metrics::multiclass_accuracy(3, {.average = danling::metrics::Average::micro})});
    }
    return metrics;
  };
  const at::Tensor scores = at::arange(90, at::kDouble).mul(0.7).sin().view({30, 3});
  const at::Tensor labels = at::arange(30, at::kLong).remainder(3);
  const auto whole = make(false);
  whole->update(scores, labels);
  const auto texts = run_ranks(4, [&](const Group& group) {
    const auto metrics = make(false);
    // 0, 5, 10 and 15 samples, in batches of five.
    for (int batch = 0; batch < group.rank(); ++batch) {
      const int first = 5 * (group.rank() * (group.rank() - 1) / 2 + batch);
      metrics->update(scores.slice(0, first, first + 5), labels.slice(0, first, first + 5));
    }
    metrics->synchronize(group);
    expect(*metrics->count().number("acc") == 30, "30 samples");
    expect(close(*metrics->average().number("acc"), *whole->average().number("acc")), "the accuracy of all samples");
    const auto mean = std::get<std::vector<double>>(*metrics->average().find("mean"));
    const auto expected = std::get<std::vector<double>>(*whole->average().find("mean"));
    for (std::size_t i = 0; i < 3; ++i) {
      expect(close(mean[i], expected[i]), "the mean of all samples");
    }
    expect(*metrics->n().number("acc") == 15, "the last batches of three ranks");
    return refusal([&] { make(group.rank() == 3)->synchronize(group); });
  });
  check_ranks(texts,
              "[stream_metrics.synchronize] expected the same metrics on all ranks, got [acc, mean] on rank 0 and "
              "[acc, mean, more] on rank 3");
}

}  // namespace synchronize_test
