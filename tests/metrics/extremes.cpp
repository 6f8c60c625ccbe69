// Metrics of large numbers beside small ones, and of every type, size and layout.
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include <metrics/functional/moments.hpp>
#include <metrics/functional/ranking.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace extremes_tests {

namespace m = danling::metrics;
using danling::AverageMeter;
using danling::GlobalMetrics;
using danling::Group;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::State;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;

constexpr double infinity = std::numeric_limits<double>::infinity();

double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * std::abs(b); }

// --- Sums ---

// 1e16, 1000 times 1, -1e16.
template <class Update>
void feed_cancelling(Update update, int from = 0, int to = 1002) {
  for (int i = from; i < to; ++i) {
    update(i == 0 ? 1e16 : i == 1001 ? -1e16 : 1.0);
  }
}

TEST_CASE("AverageMeter: small numbers survive between large ones", "[metrics]") {
  AverageMeter numbers;
  AverageMeter scalars;
  AverageMeter sums;
  AverageMeter elements;
  feed_cancelling([&](double value) {
    numbers.update(value);
    scalars.update(at::full({}, value, at::kDouble));
    sums.add(value, 1);
    elements.update(at::tensor({value, -value, 0.5 * value}, at::kDouble));
  });
  for (const AverageMeter* meter : {&numbers, &scalars, &sums}) {
    CHECK(meter->sum() == 1000.0);
    CHECK(meter->avg() == 1000.0 / 1002);
    CHECK(number(meter->sum_tensor()) == 1000.0);
  }
  CHECK(std::get<std::vector<double>>(elements.total()) == std::vector<double>{1000, -1000, 500});
  numbers.reset();
  CHECK(numbers.sum() == 0.0);
  numbers.update(infinity);
  numbers.update(1.0);
  CHECK(numbers.sum() == infinity);
  numbers.update(-infinity);
  CHECK(std::isnan(numbers.sum()));
}

TEST_CASE("AverageMeter: what rounding left out is saved, and states without it load", "[metrics]") {
  for (const bool tensors : {false, true}) {
    AverageMeter first;
    const auto update = [&](AverageMeter& meter) {
      return [&](double value) { tensors ? meter.update(at::tensor({value, 1.0}, at::kDouble)) : meter.update(value); };
    };
    const auto first_of = [](const AverageMeter& meter) { return number(meter.sum_tensor().flatten()[0]); };
    feed_cancelling(update(first), 0, 500);
    AverageMeter second;
    second.load_state_dict(danling::clone(first.state_dict()));
    AverageMeter copied(first);
    feed_cancelling(update(second), 500);
    feed_cancelling(update(copied), 500);
    CHECK(first_of(second) == 1000.0);
    CHECK(first_of(copied) == 1000.0);
    CHECK(danling::bitwise_equal(second.state_dict(), copied.state_dict()));
    State::Map older;
    for (const auto& entry : first.state_dict().map()) {
      if (entry.key.string() != "compensation") {
        older.set(entry.key.string(), entry.value);
      }
    }
    CHECK(older.size() == 4);
    AverageMeter from_older;
    from_older.load_state_dict(State(older));
    CHECK(first_of(from_older) == 1e16);
  }
}

TEST_CASE("AverageMeter: small numbers survive between large ones of other ranks", "[metrics]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    for (const bool tensors : {false, true}) {
      AverageMeter meter;
      const auto update = [&](double value) {
        tensors ? meter.update(at::tensor({value, value}, at::kDouble)) : meter.update(value);
      };
      // Rank 0: 1e16 and 499 ones; rank 1: 501 ones; rank 2: -1e16.
      feed_cancelling(update,
                      group.rank() == 0   ? 0
                      : group.rank() == 1 ? 500
                                          : 1001,
                      group.rank() == 0   ? 500
                      : group.rank() == 1 ? 1001
                                          : 1002);
      meter.synchronize(group);
      const double sum = number(meter.sum_tensor().flatten()[0]);
      expect(sum == 1000.0, concat("1000, got ", sum));
      const double last = number(meter.batch_tensor().flatten()[0]);
      expect(last == (1.0 + 1.0 - 1e16) / 3, concat("the mean of the last, got ", last));
    }
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("mcc and cohen_kappa: all digits where one class has nearly all", "[metrics]") {
  // 3e9 true negatives beside one of each other kind.
  const double tn = 3e9;
  const std::int64_t items = 3'000'000'003;
  const double mcc = (tn - 1) / (2 * (tn + 1));
  const double kappa = 2 * (tn - 1) / (4 * (tn + 1));  // 2 (tp tn - fp fn) / ((tp+fp)(fp+tn) + (tp+fn)(fn+tn))
  const auto of_sums = [](const MetricFunc& metric, const at::Tensor& sums) {
    MetricState state;
    state.set(metric.sums[0], sums);
    return metric.compute(state).number();
  };
  const at::Tensor cells = at::tensor({std::int64_t{3'000'000'000}, std::int64_t{1}, std::int64_t{1}, std::int64_t{1}});
  CHECK(near(of_sums(m::binary_mcc(), cells.view({1, 2, 2})), mcc, 1e-14));
  CHECK(near(of_sums(m::binary_cohen_kappa(), cells.view({1, 2, 2})), kappa, 1e-14));
  // The same as classes 0 and 1 of three.
  const at::Tensor classes = at::tensor({items - 3, std::int64_t{1}, std::int64_t{0}, items - 2, std::int64_t{2},
                                         std::int64_t{0}, items - 2, std::int64_t{2}, std::int64_t{0}})
                                 .view({3, 3});
  CHECK(near(of_sums(m::multiclass_mcc(3), classes), mcc, 1e-14));
  CHECK(near(of_sums(m::multiclass_cohen_kappa(3), classes), kappa, 1e-14));
}

// --- Means ---

// Predictions and targets whose sum with 1e8 is exact.
std::pair<at::Tensor, at::Tensor> fine_data(std::int64_t size) {
  const at::Tensor targets = at::randint(-1000, 1000, {size}).to(at::kDouble).div(1024);
  return {targets + at::randint(-100, 100, {size}).to(at::kDouble).div(1024), targets};
}

std::vector<MetricFunc> shift_invariant() {
  return {m::pearson(), m::r2_score(), m::explained_variance(), m::concordance(), m::mse(), m::rmse()};
}

TEST_CASE("regression: means near 1e8 cost no digits over many batches and ranks", "[metrics]") {
  const auto [preds, targets] = fine_data(20'000);
  const auto far_preds = preds + 1e8;
  const auto far_targets = targets + 1e8;
  for (const MetricFunc& metric : shift_invariant()) {
    INFO(metric.name);
    const auto& sums = *metric.sums[0];
    at::Tensor ranks = at::zeros({1, m::detail::num_moments}, at::kDouble);  // the first saw nothing
    at::Tensor on_device = ranks.clone();
    std::int64_t at = 0;
    for (const std::int64_t rows : {7000, 0, 1, 4999, 8000}) {
      at::Tensor of_rank = at::zeros({1, m::detail::num_moments}, at::kDouble);
      for (const std::int64_t end = at + rows; at < end; at += std::min<std::int64_t>(61, end - at)) {
        const std::int64_t length = std::min<std::int64_t>(61, end - at);
        const at::Tensor batch = sums.of_batch(far_preds.narrow(0, at, length), far_targets.narrow(0, at, length));
        sums.merge(of_rank, batch);
        m::detail::merge_moments_on_device(
            on_device,
            m::detail::moments_on_device(far_preds.narrow(0, at, length), far_targets.narrow(0, at, length), 1));
      }
      sums.merge(ranks, of_rank);
    }
    REQUIRE(at == 20'000);
    const double expected = metric.compute(MetricState(preds, targets)).number();
    for (const at::Tensor& total : {ranks, on_device}) {
      MetricState state;
      state.set(metric.sums[0], total);
      CHECK(near(metric.compute(state).number(), expected, 1e-13));
    }
    // One shift more: the first sample lies far from all others.
    at::Tensor outlier = sums.of_batch(at::full({1}, -3.0, at::kDouble), at::full({1}, 5.0, at::kDouble));
    sums.merge(outlier, ranks);
    at::Tensor behind = ranks.clone();
    sums.merge(behind, sums.of_batch(at::full({1}, -3.0, at::kDouble), at::full({1}, 5.0, at::kDouble)));
    const auto value_of = [&](const at::Tensor& total) {
      MetricState state;
      state.set(metric.sums[0], total);
      return metric.compute(state).number();
    };
    CHECK(near(value_of(outlier), value_of(behind), 1e-13));
  }
}

TEST_CASE("GlobalMetrics: moments that were saved without the rests of their means load", "[metrics]") {
  const auto [preds, targets] = fine_data(300);
  GlobalMetrics metrics({m::pearson(), m::mape()});
  metrics.update(preds, targets);
  const State saved = metrics.state_dict();
  State::Map older;
  for (const auto& entry : saved.map()) {
    const std::string& key = entry.key.string();
    if (key != "sums" && key != "last_sums") {
      older.set(key, entry.value);
      continue;
    }
    State::Map sums;
    for (const auto& each : entry.value.map()) {
      sums.set(each.key.string(), each.value.tensor().narrow(1, 0, 10).clone());
    }
    older.set(key, sums);
  }
  GlobalMetrics restored({m::pearson(), m::mape()});
  restored.load_state_dict(State(older));
  restored.update(preds + 1, targets);
  metrics.update(preds + 1, targets);
  for (const char* name : {"pearson", "mape"}) {
    CHECK(near(*restored.average().number(name), *metrics.average().number(name), 1e-12));
  }
}

TEST_CASE("regression: one shots equal containers for every type, size, layout and kind of number", "[metrics]") {
  const std::vector<at::ScalarType> types = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};
  using Once = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  const std::vector<std::pair<MetricFunc, Once>> metrics = {
      {m::mae(), [](const at::Tensor& p, const at::Tensor& t) { return m::mae(p, t); }},
      {m::mse(), [](const at::Tensor& p, const at::Tensor& t) { return m::mse(p, t); }},
      {m::rmse(), [](const at::Tensor& p, const at::Tensor& t) { return m::rmse(p, t); }},
      {m::mape(), [](const at::Tensor& p, const at::Tensor& t) { return m::mape(p, t); }},
      {m::r2_score(), [](const at::Tensor& p, const at::Tensor& t) { return m::r2_score(p, t); }},
      {m::explained_variance(), [](const at::Tensor& p, const at::Tensor& t) { return m::explained_variance(p, t); }},
      {m::pearson(), [](const at::Tensor& p, const at::Tensor& t) { return m::pearson(p, t); }}};
  for (const std::int64_t size : {0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 70'000}) {
    const at::Tensor base = at::randn({size}, at::kDouble).mul(2).add(3);
    for (const at::ScalarType type : types) {
      for (int kind = 0; kind < 6; ++kind) {
        at::Tensor preds = (base + at::randn({size}, at::kDouble).mul(0.5)).to(type);
        at::Tensor targets = base.to(type);
        if (kind == 1 && size > 1) {
          targets[size / 2].fill_(std::nan(""));
        } else if (kind == 2 && size > 1) {
          preds[size - 1].fill_(std::nan(""));
        } else if (kind == 3 && size > 1) {
          preds[0].fill_(infinity);
        } else if (kind == 4) {
          preds = preds.unsqueeze(1).expand({size, 3}).contiguous().select(1, 1).requires_grad_();
          targets = targets.flip(0).contiguous().flip(0);
        } else if (kind == 5) {
          targets.fill_(1.5);
        }
        for (const auto& [metric, once] : metrics) {
          INFO(metric.name << " of " << size << " " << c10::toString(type) << ", kind " << kind);
          const double expected =
              metric.compute(MetricState(preds.detach().to(at::kDouble), targets.to(at::kDouble))).number();
          const double got = number(once(preds, targets));
          CHECK((got == expected || (std::isnan(got) && std::isnan(expected)) || near(got, expected, 1e-11)));
        }
      }
    }
  }
}

TEST_CASE("regression: one shots give the textbook's values", "[metrics]") {
  const auto [preds, targets] = fine_data(5000);
  const at::Tensor error = targets - preds;
  const double rest = number((error * error).sum());
  const double spread = number((targets - targets.mean()).square().sum());
  CHECK(near(number(m::mae(preds, targets)), number(error.abs().mean()), 1e-13));
  CHECK(near(number(m::mse(preds, targets)), rest / 5000, 1e-13));
  CHECK(near(number(m::mape(preds, targets)), number((error.abs() / targets.abs().clamp_min(1.17e-6)).mean()), 1e-13));
  CHECK(near(number(m::r2_score(preds, targets)), 1 - rest / spread, 1e-13));
  CHECK(near(number(m::explained_variance(preds, targets)), 1 - number((error - error.mean()).square().sum()) / spread,
             1e-13));
  const at::Tensor whole = at::arange(1, 10);
  CHECK(error_of<MetricError>([&] { m::mae(whole, whole); }) ==
        "[metrics.preprocess_regression] expected floating targets, got Long [9]");
  CHECK(number(m::mae(whole, whole.to(at::kFloat) + 1)) == 1.0);
}

// --- Logits ---

TEST_CASE("perplexity: large logits cost no digits", "[metrics]") {
  const at::Tensor equal = at::full({300, 50}, 12345.678F);
  const at::Tensor target = at::randint(0, 50, {300});
  CHECK(near(number(m::perplexity(equal, target)), 50.0, 1e-6));
  CHECK(near(number(m::perplexity(equal.narrow(0, 0, 3), target.narrow(0, 0, 3))), 50.0, 1e-6));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const std::int64_t vocabulary : {1, 2, 15, 31, 32, 33, 700, 2049, 40'000}) {
      for (const double offset : {0.0, 1e4, -1e4}) {
        const at::Tensor logits = at::randn({12, vocabulary}, at::kDouble).mul(3).add(offset).to(type);
        const at::Tensor words = at::randint(0, vocabulary, {12});
        words[3].fill_(-100);
        const double expected = std::exp(number(at::cross_entropy_loss(logits.to(at::kDouble), words)));
        INFO(c10::toString(type) << ", " << vocabulary << " words, offset " << offset);
        const double tolerance = type == at::kDouble ? 1e-9 : 1e-6;
        CHECK(near(number(m::perplexity(logits, words)), expected, tolerance));
        CHECK(near(number(m::perplexity(logits.t().contiguous().t().requires_grad_(), words.to(at::kInt))), expected,
                   tolerance));
      }
    }
  }
}

TEST_CASE("perplexity: logits that are not finite, wherever they are", "[metrics]") {
  const at::Tensor word = at::full({1}, 2, at::kLong);
  for (const std::int64_t vocabulary : {5, 16, 40, 9000}) {
    const auto with = [&](std::int64_t at, double value) {
      at::Tensor logits = at::zeros({1, vocabulary});
      logits[0][at].fill_(value);
      return number(m::perplexity(logits, word));
    };
    CHECK(std::isnan(with(vocabulary - 1, std::nan(""))));
    CHECK(std::isnan(with(0, std::nan(""))));
    CHECK(with(2, -infinity) == infinity);
    CHECK(near(with(0, -infinity), static_cast<double>(vocabulary - 1), 1e-6));
    CHECK(std::isnan(with(vocabulary - 1, infinity)));  // as torch's cross entropy
    CHECK(std::isnan(with(2, infinity)));
    CHECK(std::isnan(number(m::perplexity(at::full({1, vocabulary}, -infinity), word))));
    CHECK(near(with(1, 80.0), std::exp(80.0), 1e-5));
  }
}

// --- Ranks ---

TEST_CASE("auroc: up to a rate, by counts as by the points of the curve", "[metrics]") {
  const m::detail::ScoreTask task = {.task = m::Task::binary, .num = 1, .ignore_index = -100};
  for (const std::int64_t size : {1, 2, 3, 40, 3000}) {
    for (const double ties : {0.0, 8.0}) {
      for (const double max_fpr : {1e-4, 0.1, 0.5, 0.999, 1.0}) {
        const at::Tensor targets = at::randint(0, 2, {size});
        at::Tensor scores = at::rand({size}, ties > 0 ? at::kFloat : at::kDouble) + 0.2 * targets;
        scores = ties > 0 ? scores.mul(ties).floor().div(ties) : scores;
        const m::detail::RocPoints points = m::detail::roc_points(scores, targets, task);
        const double expected = number(m::detail::partial_area(points.fpr, points.tpr, max_fpr));
        const double got = m::binary_auroc({.max_fpr = max_fpr}).compute(MetricState(scores, targets)).number();
        INFO(size << " samples, up to " << max_fpr);
        CHECK(std::abs(got - expected) < 1e-12);
      }
    }
  }
}

TEST_CASE("spearman: the correlation of mean ranks, for numbers that share their first bits", "[metrics]") {
  const auto mean_ranks = [](const at::Tensor& x) {
    const at::Tensor others = x.unsqueeze(0);
    const at::Tensor own = x.unsqueeze(1);
    return others.lt(own).to(at::kDouble).sum(1) + others.eq(own).to(at::kDouble).sum(1) * 0.5;
  };
  const std::int64_t size = 700;
  const std::vector<at::Tensor> kinds = {at::randn({size}, at::kDouble),
                                         at::randn({size}, at::kDouble).mul(1e-14).add(1.0),
                                         at::randint(-3, 4, {size}).to(at::kDouble).mul(0.1),
                                         at::randint(0, 2, {size}).to(at::kDouble).mul(-0.0),
                                         at::randn({size}).to(at::kDouble).mul(1e200).exp(),
                                         at::full({size}, 7.0, at::kDouble)};
  for (const at::Tensor& x : kinds) {
    for (const at::Tensor& y : kinds) {
      const at::Tensor a = mean_ranks(x) - mean_ranks(x).mean();
      const at::Tensor b = mean_ranks(y) - mean_ranks(y).mean();
      const double spread = std::sqrt(number((a * a).sum()) * number((b * b).sum()));
      const double expected = spread == 0.0 ? 0.0 : number((a * b).sum()) / spread;
      CHECK(std::abs(m::spearman().compute(MetricState(x, y)).number() - expected) < 1e-12);
      const at::Tensor signs =
          (x.unsqueeze(0).gt(x.unsqueeze(1)).to(at::kDouble) - x.unsqueeze(0).lt(x.unsqueeze(1)).to(at::kDouble)) *
          (y.unsqueeze(0).gt(y.unsqueeze(1)).to(at::kDouble) - y.unsqueeze(0).lt(y.unsqueeze(1)).to(at::kDouble));
      const double unequal_x = number(x.unsqueeze(0).ne(x.unsqueeze(1)).sum());
      const double unequal_y = number(y.unsqueeze(0).ne(y.unsqueeze(1)).sum());
      const double tau = number(signs.sum()) / std::sqrt(unequal_x * unequal_y);
      const double got = m::kendall().compute(MetricState(x, y)).number();
      CHECK(((std::isnan(tau) && std::isnan(got)) || std::abs(got - tau) < 1e-12));
    }
  }
}

}  // namespace extremes_tests
