// GlobalMetrics and MultiTaskMetrics over real processes.
#include <cmath>
#include <fstream>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace global_ranks_test {

using danling::GlobalMetrics;
using danling::Group;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::MultiTaskMetrics;
using danling::RunningSums;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;

// Depends on the order of rows.
MetricFunc ordered() {
  return {.name = "ordered", .preds_targets = true, .compute = [](const MetricState& s) {
            const at::Tensor errors = (s.preds() - s.targets()).to(at::kDouble);
            return (errors * at::arange(errors.size(0), at::kDouble)).sum();
          }};
}

MetricFunc mean_error() {
  const auto sums = std::make_shared<RunningSums>(RunningSums{
      .key = "errors", .of_batch = [](const at::Tensor& preds, const at::Tensor& targets) {
        return at::stack({(preds - targets).to(at::kDouble).sum(), at::full({}, preds.size(0), at::kDouble)});
      }});
  return {.name = "mean", .sums = {sums}, .compute = [sums](const MetricState& s) {
            return s.sums(sums)[0] / s.sums(sums)[1];
          }};
}

// Merges by another operation than addition.
MetricFunc largest() {
  const auto sums = std::make_shared<RunningSums>(
      RunningSums{.key = "largest",
                  .of_batch = [](const at::Tensor& preds, const at::Tensor&) { return preds.max().to(at::kDouble); },
                  .merge = [](at::Tensor& total, const at::Tensor& more) { total.copy_(total.maximum(more)); }});
  return {.name = "largest", .sums = {sums}, .compute = [sums](const MetricState& s) { return s.sums(sums); }};
}

std::vector<danling::MetricEntry> all_metrics() { return {ordered(), mean_error(), largest()}; }

// Sample `index` of the data set; small integers, so that sums are exact.
at::Tensor samples(std::int64_t begin, std::int64_t end) { return (at::arange(begin, end) * 37 % 101).to(at::kFloat); }

void feed(GlobalMetrics& metrics, std::int64_t begin, std::int64_t end) {
  metrics.update(samples(begin, end), at::zeros({end - begin}));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const MetricError& error) {
    return error.what();
  }
  return "no error";
}

// Bytes that this process has written to files and sockets.
std::int64_t bytes_written() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t number = 0;
  while (file >> name >> number) {
    if (name == "wchar:") {
      return number;
    }
  }
  return 0;
}

TEST_CASE("GlobalMetrics: over ranks with unequal counts, and one without any, it equals one process", "[metrics]") {
  for (const int size : {2, 4}) {
    // In the first round, rank 1 has no batch; in the second, rank 0 has none and rank 1 its first.
    const auto begin_of = [size](int rank, int round) { return std::int64_t{1000} * (round * size + rank); };
    const auto rows_of = [](int rank, int round) -> std::int64_t {
      return (round == 0 && rank == 1) || (round == 1 && rank == 0) ? 0 : 40 + 7 * rank;
    };
    // The batches that a rank has seen, in order: two of each round.
    const auto batches_of = [&](int rank, int rounds) {
      std::vector<std::pair<std::int64_t, std::int64_t>> batches;
      for (int round = 0; round < rounds; ++round) {
        if (const std::int64_t rows = rows_of(rank, round); rows > 0) {
          const std::int64_t begin = begin_of(rank, round);
          batches.insert(batches.end(), {{begin, begin + rows / 2}, {begin + rows / 2, begin + rows}});
        }
      }
      return batches;
    };
    std::vector<std::string> expected;
    for (int rounds = 1; rounds <= 3; ++rounds) {
      GlobalMetrics whole(all_metrics());
      for (std::size_t batch = 0; batch < 6; ++batch) {
        for (int rank = 0; rank < size; ++rank) {
          if (const auto batches = batches_of(rank, rounds); batch < batches.size()) {
            feed(whole, batches[batch].first, batches[batch].second);
          }
        }
      }
      expected.push_back(concat(whole.average().text(9), " of ", *whole.count().number("mean")));
    }
    const auto texts = run_ranks(size, [&](const Group& group) {
      GlobalMetrics metrics(all_metrics());
      for (int round = 0; round < 3; ++round) {
        if (const std::int64_t rows = rows_of(group.rank(), round); rows > 0) {
          const std::int64_t begin = begin_of(group.rank(), round);
          feed(metrics, begin, begin + rows / 2);
          feed(metrics, begin + rows / 2, begin + rows);
        }
        const auto own = danling::clone(metrics.state_dict());
        for (int twice = 0; twice < 2; ++twice) {
          metrics.synchronize(group);
          const std::string got = concat(metrics.average().text(9), " of ", *metrics.count().number("mean"));
          expect(got == expected[static_cast<std::size_t>(round)],
                 concat("in round ", round, " ", expected[static_cast<std::size_t>(round)], ", got ", got));
        }
        expect(danling::first_difference(metrics.state_dict(), own).empty(), "a state that stays the rank's own");
      }
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("GlobalMetrics: what is known of all ranks lasts until the next update", "[metrics]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    GlobalMetrics metrics(all_metrics());
    const std::int64_t begin = group.rank() * 10;
    feed(metrics, begin, begin + 4);
    feed(metrics, begin + 4, begin + 6 + group.rank());
    const auto text = [](const danling::Result& result) { return result.text(9); };
    const std::string own_average = text(metrics.average());
    const std::string own_value = text(metrics.value());
    metrics.synchronize(group);
    expect(text(metrics.value()) == own_value, "the rank's own last batch");
    expect(at::equal(metrics.preds(), at::cat({samples(0, 4), samples(10, 14), samples(4, 6), samples(14, 17)})),
           "the predictions of all ranks, by batch");
    expect(metrics.targets().size(0) == 13, "the targets of all ranks");
    expect(metrics.sums("errors")[1].item<double>() == 13, "the sums of all ranks");
    expect(*metrics.n().number("mean") == 5 && *metrics.count().number("mean") == 13, "the counts of all ranks");
    GlobalMetrics last(all_metrics());
    last.update(at::cat({samples(4, 6), samples(14, 17)}), at::zeros({5}));
    expect(text(metrics.batch()) == text(last.average()), "the last batches of all ranks");
    if (group.rank() == 0) {
      feed(metrics, 6, 7);
      expect(*metrics.count().number("mean") == 7, "an update to end it");
      expect(text(metrics.batch()) == text(metrics.value()), "the rank's own last batch after an update");
    }
    metrics.synchronize(group);
    expect(at::equal(metrics.preds(),
                     at::cat({samples(0, 4), samples(10, 14), samples(4, 6), samples(14, 17), samples(6, 7)})),
           "what is new to have come");
    expect(
        text(metrics.batch()) ==
            [&] {
              GlobalMetrics only(all_metrics());
              feed(only, 6, 7);
              return text(only.average());
            }(),
        "the last batch to be of the rank that has one more");
    metrics.load_state_dict(metrics.state_dict());
    expect(*metrics.count().number("mean") == 7, "a load to end it");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("GlobalMetrics: after a reset or load on one rank the others send all they have", "[metrics]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    GlobalMetrics metrics(all_metrics());
    const std::int64_t begin = group.rank() * 10;
    feed(metrics, begin, begin + 3);
    metrics.synchronize(group);
    if (group.rank() == 2) {
      metrics.reset();
      feed(metrics, 25, 27);
    }
    metrics.synchronize(group);
    expect(at::equal(metrics.preds(), at::cat({samples(0, 3), samples(10, 13), samples(25, 27), samples(30, 33)})),
           "what each rank holds");
    const danling::State saved = danling::clone(metrics.state_dict());
    feed(metrics, begin + 5, begin + 6);
    metrics.synchronize(group);
    metrics.load_state_dict(saved);
    metrics.synchronize(group);
    expect(metrics.preds().size(0) == 11, "what each rank had saved");
    metrics.reset();
    metrics.synchronize(group);
    expect(!metrics.preds().defined() && std::isnan(*metrics.average().number("mean")), "nothing after a reset");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("GlobalMetrics: sends only what is new", "[metrics]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    GlobalMetrics metrics(all_metrics());
    const auto sent_by = [&] {
      const std::int64_t before = bytes_written();
      metrics.synchronize(group);
      return bytes_written() - before;
    };
    feed(metrics, 0, 100000);
    const std::int64_t first = sent_by();
    feed(metrics, 0, 100);
    const std::int64_t second = sent_by();
    expect(first > 800000, concat("more than the bytes of predictions and targets, got ", first));
    expect(second < 40000, concat("little more than the new ones, got ", second));
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("GlobalMetrics: ranks that differ are the same error on all, and change nothing", "[metrics]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    std::string out;
    const auto mismatch = [&](GlobalMetrics& metrics) {
      const std::string before = metrics.average().text(3);
      out += refusal([&] { metrics.synchronize(group); }) + "\n";
      expect(metrics.average().text(3) == before, "the rank's own values");
    };
    GlobalMetrics names({group.rank() == 2 ? mean_error().named("other") : mean_error()});
    mismatch(names);
    GlobalMetrics dtypes({ordered()});
    if (group.rank() != 1) {  // rank 1 has none to differ
      dtypes.update(at::ones({2}, group.rank() == 3 ? at::kDouble : at::kFloat), at::zeros({2}));
    }
    mismatch(dtypes);
    const MetricFunc first{
        .name = "first", .preds_targets = true, .compute = [](const MetricState& s) { return s.preds().sum(); }};
    GlobalMetrics shapes({first});
    shapes.update(at::ones({2, group.rank() == 0 ? 5 : 4}), at::zeros({2}));
    mismatch(shapes);
    // The containers work again.
    shapes.reset();
    shapes.update(at::ones({1, 5}), at::zeros({1}));
    shapes.synchronize(group);
    return out + shapes.average().text(0);
  });
  check_ranks(texts,
              "[global_metrics.synchronize] expected the same metrics on all ranks, got [mean] of sums [errors] on "
              "rank 0 and [other] of sums [errors] on rank 2\n"
              "[global_metrics.synchronize] expected predictions of the same dtype and shape on all ranks, got Float "
              "[*] on rank 0 and Double [*] on rank 3\n"
              "[global_metrics.synchronize] expected predictions of the same dtype and shape on all ranks, got Float "
              "[*, 5] on rank 0 and Float [*, 4] on rank 1\n"
              "first: 20");
}

TEST_CASE("GlobalMetrics: another group of equal size starts anew", "[metrics]") {
  const int ports[] = {danling_test::free_port(), danling_test::free_port(), danling_test::free_port()};
  const auto pair = [&](int which, int rank) {
    return Group::connect(danling_test::identity_of_rank(rank, 2, ports[which]),
                          {.timeout = std::chrono::seconds(30), .host = {}});
  };
  const auto texts = danling_test::run_processes(4, [&](int process) {
    GlobalMetrics metrics(all_metrics());
    feed(metrics, process * 10, process * 10 + 4);
    const Group first = pair(process / 2, process % 2);
    metrics.synchronize(first);
    std::string out = metrics.average().text(0);
    if (process == 0 || process == 3) {
      const Group other = pair(2, process / 3);
      metrics.synchronize(other);
      out = metrics.average().text(0);
      metrics.synchronize(other);
      expect(metrics.average().text(0) == out, "the same again");
    }
    return out;
  });
  const auto both = [](int a, int b) {
    GlobalMetrics whole(all_metrics());
    feed(whole, a * 10, a * 10 + 4);
    feed(whole, b * 10, b * 10 + 4);
    return whole.average().text(0);
  };
  CHECK(texts == std::vector{both(0, 3), both(0, 1), both(2, 3), both(0, 3)});
}

TEST_CASE("synchronize: containers of different kinds are the same error on all ranks", "[metrics]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    GlobalMetrics global({mean_error()});
    danling::StreamMetrics stream({mean_error()});
    MultiTaskMetrics tasks;
    tasks.add("mean", mean_error());
    danling::AverageMeters meters;
    const std::vector<std::function<void()>> calls = {
        [&] { global.synchronize(group); }, [&] { stream.synchronize(group); }, [&] { tasks.synchronize(group); },
        [&] { meters.synchronize(group); }};
    std::string out;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      out += refusal(calls[(i + static_cast<std::size_t>(group.rank())) % calls.size()]) + "\n";
    }
    global.synchronize(group);
    return out;
  });
  const std::string begin = "[metrics.synchronize] expected the same kind of metrics on all ranks, got ";
  check_ranks(texts, begin + "global_metrics on rank 0 and stream_metrics on rank 1\n" + begin +
                         "stream_metrics on rank 0 and multi_task_metrics on rank 1\n" + begin +
                         "multi_task_metrics on rank 0 and average_meters on rank 1\n" + begin +
                         "average_meters on rank 0 and global_metrics on rank 1\n");
}

TEST_CASE("MultiTaskMetrics: over ranks it equals one process, weights included", "[metrics]") {
  const auto create = [](bool more) {
    auto metrics =
        std::make_unique<MultiTaskMetrics>(danling::MultiTaskOptions{.aggregate = danling::Aggregate::micro});
    metrics->add("a", std::make_shared<GlobalMetrics>(std::vector<danling::MetricEntry>{mean_error()}));
    metrics->add("b", mean_error());
    if (more) {
      metrics->add("c", mean_error());
    }
    return metrics;
  };
  const auto update = [](MultiTaskMetrics& metrics, int rank) {
    const at::Tensor zeros = at::zeros({rank + 1});
    metrics.update({{"a", samples(rank * 9, rank * 9 + rank + 1), zeros}});
    if (rank != 1) {
      metrics.update({{"b", samples(50, 51 + rank), zeros}});
    }
  };
  const auto whole = create(false);
  for (int rank = 0; rank < 3; ++rank) {
    update(*whole, rank);
  }
  const auto texts = run_ranks(3, [&](const Group& group) {
    const auto metrics = create(false);
    update(*metrics, group.rank());
    metrics->synchronize(group);
    return metrics->average().text(9) + "\n" + refusal([&] { create(group.rank() == 1)->synchronize(group); });
  });
  check_ranks(texts, whole->average().text(9) +
                         "\n[multi_task_metrics.synchronize] expected the same tasks on all ranks, got [a, b] on rank "
                         "0 and [a, b, c] on rank 1");
}

}  // namespace global_ranks_test
