// Processes with several shares of each global batch deliver what as many processes with one share deliver.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <danling/data/subset_sampler.hpp>
#include <danling/data/weighted_sampler.hpp>

#include "loader_kinds.hpp"

namespace {

namespace loader_parts_test {

using namespace loader_test;
using danling::first_difference;

constexpr int num_sources = 11;

/// A source and options. The loaders of a case differ only in their shard and workers.
struct PartsCase {
  int kind = 0;
  std::int64_t size = 1;
  data::LoaderOptions options = {};
  bool is_stream() const { return kind >= 7; }
};

std::unique_ptr<Loader> loader_of(const PartsCase& of, data::Shard shard, std::int64_t workers) {
  data::LoaderOptions options = of.options;
  options.shard = shard;
  options.num_workers = workers;
  const std::int64_t size = of.size;
  const auto weather = std::make_shared<Weather>();
  Numbers lengths(static_cast<std::size_t>(size));
  std::generate(lengths.begin(), lengths.end(), [i = 0]() mutable { return 1 + i++ * 7 % 11; });
  data::LengthBucketsOptions buckets{.num_buckets = 3, .shuffle = true};
  data::Source<Records> source = std::make_shared<Computed>(size);
  switch (of.kind) {
    case 0:
      break;
    case 1:
      options.shuffle = true;
      break;
    case 2:
      options.sampler =
          std::make_shared<data::RandomSampler>(size, data::RandomSamplerOptions{size + 3, true, 5, "train"});
      break;
    case 3: {
      std::vector<double> weights(lengths.begin(), lengths.end());
      options.sampler = std::make_shared<data::WeightedSampler>(weights);
      break;
    }
    case 4: {
      Numbers half;
      for (std::int64_t i = 0; i < size; i += 2) {
        half.push_back(i);
      }
      options.sampler = std::make_shared<data::SubsetSampler>(half);
      break;
    }
    case 5:
    case 6:
      if (of.kind == 6) {
        buckets.max_tokens = 30;
      }
      options.batch_sampler = std::make_shared<data::LengthBuckets>(lengths, buckets);
      break;
    case 7:
      source = std::make_shared<Counting>(size);
      break;
    case 8:
      source = data::shuffle(Ticks{weather, 0, size}, {.buffer_size = 6, .seed = 3});
      break;
    case 9:
      source = data::concat(Ticks{weather, 0, size / 2}, Ticks{weather, 100, size - size / 2});
      break;
    default:
      source = data::map(Ticks{weather, 0, size}, [](Number tick) { return tick; });
  }
  return std::make_unique<Loader>(source, options);
}

struct Delivered {
  Records batch;
  data::BatchInfo info;
  std::vector<data::Metadata> metadata;
};

/// Of one epoch, by loaders with one share each.
struct Expected {
  std::vector<std::vector<std::optional<Delivered>>> steps;  // of each step and share
  std::vector<State> states;                                 // of share 0: before each step, and after the last
  Numbers samples;                                           // at these places
  std::int64_t global_step = 0;                              // at the first of them
  std::vector<std::optional<std::int64_t>> lengths;          // of each share
};

Delivered delivered(Loader& loader) {
  Delivered out{loader.batch(), loader.info(), {}};
  for (std::size_t i = 0; i < out.info.size(); ++i) {
    out.metadata.push_back(loader.metadata(static_cast<std::int64_t>(i)));
  }
  return out;
}

void check_same(const data::BatchInfo& a, const data::BatchInfo& b) {
  REQUIRE(a.indices == b.indices);
  REQUIRE(a.split == b.split);
  REQUIRE(a.epoch == b.epoch);
  REQUIRE(a.batch_idx == b.batch_idx);
  REQUIRE(a.global_step == b.global_step);
  REQUIRE(a.position == b.position);
  REQUIRE(a.shard_id == b.shard_id);
  REQUIRE(a.num_padding == b.num_padding);
  REQUIRE(a.global_size == b.global_size);
  REQUIRE((a.epoch_key == b.epoch_key));
  REQUIRE((a.batch_key == b.batch_key));
  REQUIRE((a.sample_keys == b.sample_keys));
  REQUIRE((a.entry_keys == b.entry_keys));
}

void check_same(const Delivered& a, const Delivered& b) {
  REQUIRE(a.batch.values == b.batch.values);
  REQUIRE((a.batch.keys == b.batch.keys));
  check_same(a.batch.info, b.batch.info);
  check_same(a.info, b.info);
  REQUIRE((a.metadata == b.metadata));
}

/// `early`: the process has no samples in the last global batch, which others still deliver.
void check_state(const Loader& loader, const State& expected, bool early) {
  State state = loader.state_dict();
  if (early) {
    state.map().erase("finished");
  }
  REQUIRE(first_difference(state, expected) == "");
}

constexpr std::int64_t epochs_of_case = 2;

std::vector<Expected> expected_of(const PartsCase& of) {
  const std::int64_t shares = of.options.shard.world_size;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (std::int64_t share = 0; share < shares; ++share) {
    loaders.push_back(loader_of(of, {share, shares, of.options.shard.padding}, 0));
  }
  std::vector<Expected> out(epochs_of_case);
  for (std::int64_t epoch = 0; epoch < epochs_of_case; ++epoch) {
    Expected& expected = out[static_cast<std::size_t>(epoch)];
    for (const auto& loader : loaders) {
      loader->start_epoch(epoch);
      expected.lengths.push_back(loader->length());
    }
    Loader& first = *loaders.front();
    expected.global_step = first.global_step();
    for (bool more = true; more;) {
      expected.states.push_back(first.state_dict());
      expected.samples.push_back(first.samples());
      std::vector<std::optional<Delivered>> step;
      for (const auto& loader : loaders) {
        step.push_back(loader->next() ? std::optional(delivered(*loader)) : std::nullopt);
        if (step.back()) {
          check_state(*loader, first.state_dict(), loader->is_last() && !first.is_last());
        }
        REQUIRE(loader->is_last_share());
        REQUIRE(loader->share_index() == 0);
        REQUIRE(loader->num_shares() == (step.back() ? 1 : 0));
      }
      more = step.front().has_value();
      if (more) {
        expected.steps.push_back(std::move(step));
      }
    }
  }
  return out;
}

/// Processes that share the `shares` of every global batch.
class Processes {
 public:
  Processes(const PartsCase& of, const std::vector<Expected>& expected, Draw& draw)
      : of_(of), expected_(expected), draw_(draw) {
    start();
  }

  /// As a run that was started anew with another number of processes.
  void start() {
    loaders_.clear();
    divide();
  }
  /// As processes that go on when others have ended, and some that join them.
  void regroup() {
    std::erase_if(loaders_, [&](const auto&) { return draw_(0, 2) == 0; });
    divide();
  }
  void load(const State& state) {
    for (const auto& loader : loaders_) {
      loader->load_state_dict(state);
    }
  }
  void start_epoch(std::int64_t epoch) {
    epoch_ = epoch;
    for (const auto& loader : loaders_) {
      loader->start_epoch(epoch);
    }
  }
  State state() const { return loaders_.front()->state_dict(); }

  /// Delivers step `index`. Then process 0 has the state behind it.
  void step(std::int64_t index) {
    const Expected& expected = expected_[static_cast<std::size_t>(epoch_)];
    for (const auto& loader : loaders_) {
      const std::int64_t parts = parts_of(*loader, index);
      for (std::int64_t part = 0; part < parts; ++part) {
        REQUIRE(loader->next());
        const bool ends = part + 1 == parts;
        const std::int64_t place = index + (ends ? 1 : 0);
        REQUIRE(loader->share_index() == part);
        REQUIRE(loader->num_shares() == parts);
        REQUIRE(loader->is_last_share() == ends);
        REQUIRE(loader->is_last() == (ends && parts_of(*loader, index + 1) == 0));
        check_same(delivered(*loader), *expected.steps[std::size_t(index)][std::size_t(loader->info().shard_id)]);
        REQUIRE(loader->info().shard_id == loader->options().shard.rank + part);
        REQUIRE(loader->position() == place);
        REQUIRE(loader->global_step() == expected.global_step + place);
        REQUIRE(loader->samples() == expected.samples[std::size_t(place)]);
        check_state(*loader, expected.states[std::size_t(place)],
                    loader->is_last() && place < std::int64_t(expected.steps.size()));
      }
      if (parts == 0) {
        REQUIRE_FALSE(loader->next());
      }
    }
  }
  /// Delivers some parts of step `index`, as a process that is stopped between them.
  void begin_step(std::int64_t index) {
    for (const auto& loader : loaders_) {
      for (std::int64_t i = draw_(0, parts_of(*loader, index)); i > 0; --i) {
        REQUIRE(loader->next());
      }
    }
  }
  void check_end() {
    for (const auto& loader : loaders_) {
      REQUIRE_FALSE(loader->next());
      REQUIRE(loader->is_last_share());
      REQUIRE(loader->num_shares() == 0);
    }
  }

 private:
  /// Gives the shares to the loaders that there are, and to new ones.
  void divide() {
    const std::int64_t shares = of_.options.shard.world_size;
    std::size_t count = 0;
    for (std::int64_t rank = 0; rank < shares; ++count) {
      const std::int64_t parts = draw_(0, 3) == 0 ? shares - rank : draw_(1, std::min<std::int64_t>(shares - rank, 4));
      const data::Shard shard{rank, shares, of_.options.shard.padding, parts};
      if (count < loaders_.size()) {
        loaders_[count]->reshard(shard);
      } else {
        loaders_.push_back(loader_of(of_, shard, draw_(0, 2)));
      }
      REQUIRE(loaders_[count]->length() == expected_[0].lengths[static_cast<std::size_t>(rank)]);
      rank += parts;
    }
    loaders_.resize(count);
  }

  /// Shares of this process that have samples in a step.
  std::int64_t parts_of(const Loader& loader, std::int64_t index) const {
    const Expected& expected = expected_[static_cast<std::size_t>(epoch_)];
    const data::Shard& shard = loader.options().shard;
    std::int64_t count = 0;
    for (std::int64_t part = 0; index < std::int64_t(expected.steps.size()) && part < shard.num_shares; ++part) {
      count += expected.steps[std::size_t(index)][std::size_t(shard.rank + part)] ? 1 : 0;
    }
    return count;
  }

  const PartsCase& of_;
  const std::vector<Expected>& expected_;
  Draw& draw_;
  std::int64_t epoch_ = 0;
  std::vector<std::unique_ptr<Loader>> loaders_;
};

PartsCase drawn_case(Draw& draw, int kind) {
  PartsCase out;
  out.kind = kind;
  out.size = draw(1, 40);
  out.options.batch_size = draw(1, 5);
  out.options.drop_last = draw(0, 2) == 0;
  out.options.seed = 8;
  out.options.split = "train";
  out.options.shard.world_size = draw(0, 4) == 0 ? draw(9, 24) : draw(1, 6);
  if (out.is_stream()) {
    out.options.snapshot_every_n_steps = draw(1, 3);
  } else {
    out.options.shard.padding = !out.options.drop_last && draw(0, 1) == 0;
  }
  return out;
}

TEST_CASE("Loader: any partition of the shares over processes delivers the same batches and saves the same bytes",
          "[data]") {
  Draw draw(11);
  for (int round = 0; round < 40 * num_sources; ++round) {
    const PartsCase of = drawn_case(draw, round % num_sources);
    CAPTURE(round, of.kind, of.size, of.options.batch_size, of.options.drop_last, of.options.shard.world_size,
            of.options.shard.padding);
    const std::vector<Expected> expected = expected_of(of);
    Processes processes(of, expected, draw);
    for (std::int64_t epoch = 0; epoch < epochs_of_case; ++epoch) {
      const auto steps = std::int64_t(expected[std::size_t(epoch)].steps.size());
      processes.start_epoch(epoch);
      for (std::int64_t step = 0; step < steps; ++step) {
        processes.step(step);
      }
      processes.check_end();
    }
  }
}

TEST_CASE(
    "Loader: a state goes on in another partition, in a running loader, and in one that is resharded, at any step",
    "[data]") {
  Draw draw(12);
  for (int round = 0; round < 30 * num_sources; ++round) {
    const PartsCase of = drawn_case(draw, round % num_sources);
    CAPTURE(round, of.kind, of.size, of.options.batch_size, of.options.drop_last, of.options.shard.world_size,
            of.options.shard.padding);
    const std::vector<Expected> expected = expected_of(of);
    Processes processes(of, expected, draw);
    for (std::int64_t epoch = 0; epoch < epochs_of_case; ++epoch) {
      const auto steps = std::int64_t(expected[std::size_t(epoch)].steps.size());
      processes.start_epoch(epoch);
      std::int64_t saved = 0;
      State state = processes.state();
      std::int64_t back = 3;  // times
      for (std::int64_t step = 0; step < steps;) {
        processes.step(step++);
        if (draw(0, 1) == 0) {
          saved = step;
          state = processes.state();
          REQUIRE(first_difference(state, expected[std::size_t(epoch)].states[std::size_t(saved)]) == "");
        }
        if (back > 0 && draw(0, 2) == 0) {
          --back;
          processes.begin_step(step);
          if (const auto change = draw(0, 2); change == 0) {
            processes.start();
          } else if (change == 1) {
            processes.regroup();
          }
          processes.load(state);
          processes.start_epoch(epoch);
          step = saved;
        }
      }
      processes.check_end();
      processes.load(expected[std::size_t(epoch)].states.back());  // all have it, also those without a last batch
    }
  }
}

TEST_CASE("Loader: reshard refuses a share that does not exist, and changes nothing", "[data]") {
  Loader loader(std::make_shared<Computed>(8), {.batch_size = 2, .shard = {0, 2}});
  Loader other(std::make_shared<Computed>(8), {.batch_size = 2, .shard = {0, 2}});
  loader.start_epoch(0);
  other.start_epoch(0);
  REQUIRE(loader.next());
  REQUIRE(other.next());
  CHECK_THROWS_WITH(loader.reshard({2, 2}), "[data.loader] expected a rank in [0, world_size), got rank 2 of 2");
  CHECK(loader.options().shard.rank == 0);
  check_same(delivered(loader), delivered(other));
  REQUIRE(loader.next());
  REQUIRE(other.next());
  check_same(delivered(loader), delivered(other));
}

}  // namespace loader_parts_test

}  // namespace
