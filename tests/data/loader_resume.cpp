#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include <danling/data/loader.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_resume_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

struct Case {
  std::int64_t size = 0;
  std::int64_t epoch = 0;
  data::LoaderOptions options;  // of rank 0
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool flip() { return (*this)(0, 1) == 1; }

 private:
  std::mt19937_64 engine_;
};

void draw_layout(Draw& draw, data::LoaderOptions& options, bool of_stream) {
  options.batch_size = draw(1, 9);
  options.shard.world_size = draw(0, 2) == 0 ? 1 : draw(1, 5);
  options.shard.padding = !of_stream && draw.flip();
  options.drop_last = draw(0, 3) == 0;
  options.num_workers = draw(0, 3) == 0 ? draw(1, 3) : 0;
  options.prefetch_factor = options.num_workers > 0 && draw.flip() ? std::optional(draw(1, 3)) : std::nullopt;
}

/// One loader for each rank; `source(rank)` gives its data.
template <class MakeSource>
std::vector<std::unique_ptr<Loader>> ranks_of(const data::LoaderOptions& options, const MakeSource& source) {
  std::vector<std::unique_ptr<Loader>> out;
  for (std::int64_t rank = 0; rank < options.shard.world_size; ++rank) {
    data::LoaderOptions own = options;
    own.shard.rank = rank;
    out.push_back(std::make_unique<Loader>(source(), own));
  }
  return out;
}

/// The records of every rank at the next step, without padding; nothing for those that have no more.
std::vector<Numbers> step(std::vector<std::unique_ptr<Loader>>& ranks) {
  std::vector<Numbers> out(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Loader& loader = *ranks[rank];
    if (loader.next()) {
      out[rank] = loader.batch().values;
      REQUIRE(loader.batch().info.indices == loader.info().indices);
      REQUIRE(loader.batch_size() == static_cast<std::int64_t>(out[rank].size()));
      out[rank].resize(out[rank].size() - static_cast<std::size_t>(loader.num_padding()));
    }
  }
  return out;
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers out;
  for (const Numbers& part : parts) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Numbers order_of(const Case& of) {
  Numbers out = counting(of.size);
  if (of.options.shuffle) {
    data::RandomSampler sampler(of.size, of.options.seed, of.options.split);
    sampler.set_epoch(of.epoch);
    sampler.fill(0, out);
  }
  return out;
}

/// Sizes of the ranks' batches in a global batch of `global` samples, padding included.
Numbers sizes_of(const data::LoaderOptions& options, std::int64_t global) {
  const std::int64_t world_size = options.shard.world_size;
  if (global == options.batch_size * world_size) {
    return Numbers(static_cast<std::size_t>(world_size), options.batch_size);
  }
  Numbers out(static_cast<std::size_t>(world_size), global / world_size);
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    const bool more = static_cast<std::int64_t>(rank) < global % world_size;
    out[rank] += more || (options.shard.padding && global % world_size != 0) ? 1 : 0;
  }
  return out;
}

/// Steps to the end: the records in `rest`, in this order, in global batches as they should be.
void check_rest(std::vector<std::unique_ptr<Loader>>& ranks, const Case& of, const Numbers& rest) {
  const data::LoaderOptions& options = of.options;
  const auto keys = data::RandomKey::of(data::order_key(options.seed, of.epoch, options.split + "/records"));
  const std::int64_t global = options.batch_size * options.shard.world_size;
  const Numbers order = order_of(of);
  const auto left = static_cast<std::int64_t>(rest.size());
  std::int64_t done = 0;
  while (left - done > (options.drop_last ? global - 1 : 0)) {
    const std::int64_t size = std::min(global, left - done);
    REQUIRE(joined(step(ranks)) == Numbers(rest.begin() + done, rest.begin() + done + size));
    done += size;
    const Numbers sizes = sizes_of(options, size);
    std::int64_t padding = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      Loader& loader = *ranks[rank];
      REQUIRE(loader.batch_size() == sizes[rank]);
      if (sizes[rank] == 0) {
        continue;
      }
      REQUIRE(loader.global_batch_size() == size);
      REQUIRE(loader.info().shard_id == static_cast<std::int64_t>(rank));
      const Records& batch = loader.batch();
      for (std::size_t i = 0; i < batch.values.size(); ++i) {
        REQUIRE(batch.keys[i] == keys.fold_in(static_cast<std::uint64_t>(batch.values[i])));
      }
      for (auto i = static_cast<std::size_t>(sizes[rank] - loader.num_padding()); i < batch.values.size(); ++i) {
        REQUIRE(batch.values[i] == order[static_cast<std::size_t>(padding++ % of.size)]);
      }
      const bool more = left - done > (options.drop_last ? global - 1 : 0);
      const bool last = !more || (left - done < global && sizes_of(options, left - done)[rank] == 0);
      REQUIRE(loader.is_last() == last);
    }
  }
  REQUIRE(joined(step(ranks)).empty());
}

TEST_CASE("Loader: any layout goes on where any other stopped, none lost, none twice, in the same order", "[data]") {
  Draw draw(20);
  for (int round = 0; round < 3000; ++round) {
    Case before;
    before.size = draw(1, 60);
    before.epoch = draw(0, 3);
    before.options.shuffle = draw.flip();
    before.options.seed = static_cast<std::uint64_t>(draw(0, 1000));
    before.options.split = "train";
    draw_layout(draw, before.options, false);
    CAPTURE(round, before.size, before.options.batch_size, before.options.shard.world_size, before.options.drop_last,
            before.options.shard.padding, before.options.num_workers);
    const auto source = [&] { return std::make_shared<Computed>(before.size); };
    auto first = ranks_of(before.options, source);
    for (auto& loader : first) {
      loader->start_epoch(before.epoch);
    }
    const Numbers order = order_of(before);
    const std::int64_t stop = draw(0, *first[0]->length());
    Numbers seen;
    for (std::int64_t i = 0; i < stop; ++i) {
      const Numbers part = joined(step(first));
      seen.insert(seen.end(), part.begin(), part.end());
    }
    REQUIRE(seen == Numbers(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(seen.size())));
    const State state = first[0]->state_dict();

    Case after = before;
    after.options.seed = 77;  // that of the state goes on
    draw_layout(draw, after.options, false);
    auto second = ranks_of(after.options, source);
    after.options.seed = before.options.seed;
    CAPTURE(stop, after.options.batch_size, after.options.shard.world_size, after.options.drop_last,
            after.options.shard.padding, after.options.num_workers);
    for (auto& loader : second) {
      loader->load_state_dict(state);
      REQUIRE(danling::bitwise_equal(loader->state_dict().at("samples"), state.at("samples")));
      loader->start_epoch(after.epoch);
      REQUIRE(loader->samples() == static_cast<std::int64_t>(seen.size()));
      REQUIRE(loader->global_step() == stop);
    }
    check_rest(second, after, Numbers(order.begin() + static_cast<std::ptrdiff_t>(seen.size()), order.end()));
    ++after.epoch;
    for (auto& loader : second) {
      loader->start_epoch(after.epoch);
    }
    check_rest(second, after, order_of(after));
  }
}

TEST_CASE("Loader: what was delivered out of order is not delivered again", "[data]") {
  Draw draw(21);
  std::int64_t gaps = 0;
  for (int round = 0; round < 300; ++round) {
    Case before;
    before.size = draw(20, 120);
    before.epoch = draw(0, 3);
    before.options.shuffle = draw.flip();
    before.options.split = "train";
    draw_layout(draw, before.options, false);
    before.options.in_order = false;
    before.options.num_workers = draw(1, 3);
    before.options.prefetch_factor = draw(1, 4);
    CAPTURE(round, before.size, before.options.batch_size, before.options.shard.world_size, before.options.drop_last,
            before.options.shard.padding, before.options.num_workers);
    const auto slow = draw(0, before.size - 1);
    const auto source = [&] {
      return std::make_shared<Computed>(before.size, [slow](std::span<const std::int64_t> indices) {
        const bool waits = std::find(indices.begin(), indices.end(), slow) != indices.end();
        std::this_thread::sleep_for(std::chrono::microseconds(waits ? 1000 : 10));
      });
    };
    const Numbers order = order_of(before);
    std::multiset<std::int64_t> seen;
    State state;
    // Stopped twice: a state that is resumed has gaps of its own.
    for (int times = 0; times < 2; ++times) {
      auto ranks = ranks_of(before.options, source);
      for (auto& loader : ranks) {
        if (times > 0) {
          loader->load_state_dict(state);
        }
        loader->start_epoch(before.epoch);
      }
      const std::int64_t steps = draw(0, 6);
      for (std::int64_t i = 0; i < steps; ++i) {
        for (const std::int64_t record : joined(step(ranks))) {
          seen.insert(record);
        }
      }
      std::vector<State> states;
      for (auto& loader : ranks) {
        states.push_back(loader->state_dict());
      }
      state = Loader::merge_states(states);
      before.options.batch_size = draw(1, 9);
    }
    gaps += state.map().contains("delivered") ? 1 : 0;
    REQUIRE(std::set(seen.begin(), seen.end()).size() == seen.size());
    Numbers rest;
    std::copy_if(order.begin(), order.end(), std::back_inserter(rest), [&](auto r) { return !seen.contains(r); });
    Case after = before;
    draw_layout(draw, after.options, false);
    after.options.in_order = true;
    CAPTURE(seen.size(), after.options.batch_size, after.options.shard.world_size, after.options.drop_last,
            after.options.shard.padding, after.options.num_workers);
    auto last = ranks_of(after.options, source);
    for (auto& loader : last) {
      loader->load_state_dict(state);
      loader->start_epoch(after.epoch);
    }
    check_rest(last, after, rest);
  }
  CHECK(gaps > 10);  // else it did not test what it is for
}

TEST_CASE("Loader: out of order every record of an epoch comes once", "[data]") {
  data::LoaderOptions options{.batch_size = 3, .shuffle = true, .split = "train", .num_workers = 3, .in_order = false};
  Loader loader(std::make_shared<Computed>(100,
                                           [](std::span<const std::int64_t> indices) {
                                             std::this_thread::sleep_for(
                                                 std::chrono::microseconds(indices[0] % 7 == 0 ? 2000 : 10));
                                           }),
                options);
  int in_order = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    Numbers seen = drain(loader);
    in_order += seen == order_of({100, epoch, options}) ? 1 : 0;
    std::sort(seen.begin(), seen.end());
    CHECK(seen == counting(100));
    CHECK(loader.state_dict().at("samples").integer() == 100);
  }
  CHECK(in_order < 3);
}

TEST_CASE("Loader: 10^12 records are shuffled and resumed in the middle", "[data]") {
  const std::int64_t size = 1'000'000'000'000;  // what takes time for each ends in no test's time
  const data::LoaderOptions options{.batch_size = 64, .shuffle = true, .seed = 9, .split = "train", .num_workers = 2};
  Loader loader(std::make_shared<Computed>(size), options);
  loader.start_epoch(0);
  REQUIRE(loader.next());
  State state = loader.state_dict();
  state["epoch"] = 3;
  state["samples"] = size / 2 + 1;
  loader.load_state_dict(state);
  loader.start_epoch(3);
  data::RandomSampler order(size, 9, "train");
  order.set_epoch(3);
  for (std::int64_t i = 0; i < 5; ++i) {
    REQUIRE(loader.next());
    Numbers expected(64);
    order.fill(size / 2 + 1 + i * 64, expected);
    CHECK(loader.batch().values == expected);
  }
  CHECK(loader.state_dict().at("samples").integer() == size / 2 + 1 + 5 * 64);
}

TEST_CASE("Loader: streams go on in any layout after those in order and those that were not", "[data]") {
  Draw draw(22);
  std::int64_t gaps = 0;
  for (int round = 0; round < 600; ++round) {
    const std::int64_t size = draw(0, 90);
    data::LoaderOptions before{.split = "train"};
    draw_layout(draw, before, true);
    before.drop_last = false;
    before.in_order = draw.flip();
    before.snapshot_every_n_steps = draw.flip() ? std::optional(draw(1, 4)) : std::nullopt;
    if (!before.in_order) {
      before.shard.world_size = draw(1, 2);
      before.num_workers = draw(1, 3);
      before.prefetch_factor = draw(1, 3);
    }
    CAPTURE(round, size, before.batch_size, before.shard.world_size, before.num_workers, before.in_order);
    const auto slow = draw(0, 2);
    const auto source = [&] {
      return std::make_shared<Counting>(size, [slow](std::int64_t first) {
        std::this_thread::sleep_for(std::chrono::microseconds(slow > 0 && first % 5 == 0 ? 500 : 0));
      });
    };
    std::multiset<std::int64_t> seen;
    auto first = ranks_of(before, source);
    for (auto& loader : first) {
      loader->start_epoch(2);
    }
    const std::int64_t steps = draw(0, 8);
    for (std::int64_t i = 0; i < steps; ++i) {
      for (const std::int64_t record : joined(step(first))) {
        seen.insert(record);
      }
    }
    std::vector<State> states;
    for (auto& loader : first) {
      states.push_back(loader->state_dict());
    }
    const State state = Loader::merge_states(states);
    gaps += state.map().contains("delivered") ? 1 : 0;

    data::LoaderOptions after{.split = "train"};
    draw_layout(draw, after, true);
    after.drop_last = false;
    // Gaps are not to be smaller than the processes that share them.
    after.shard.world_size = before.in_order ? after.shard.world_size : 1;
    CAPTURE(seen.size(), after.batch_size, after.shard.world_size, after.num_workers);
    Numbers rest;
    auto second = ranks_of(after, source);
    for (auto& loader : second) {
      loader->load_state_dict(state);
      loader->start_epoch(2);
    }
    while (true) {
      const Numbers part = joined(step(second));
      if (part.empty()) {
        break;
      }
      rest.insert(rest.end(), part.begin(), part.end());
    }
    Numbers expected = counting(size, 2000);
    std::erase_if(expected, [&](std::int64_t record) { return seen.contains(record); });
    REQUIRE(rest == expected);
    REQUIRE(std::set(seen.begin(), seen.end()).size() == seen.size());
  }
  CHECK(gaps > 10);
}

TEST_CASE("Loader: drop_last out of order, in gaps and on several ranks, leaves the same samples out in every state",
          "[data]") {
  const auto source = [] { return std::make_shared<Counting>(26); };
  const data::LoaderOptions alone{.batch_size = 2, .split = "train"};
  Loader begin(source(), alone);
  begin.start_epoch(0);
  State state = begin.state_dict();
  state["delivered"] = State::List{std::int64_t{5}, std::int64_t{10}};
  const data::LoaderOptions options{.batch_size = 2,
                                    .drop_last = true,
                                    .split = "train",
                                    .num_workers = 1,
                                    .in_order = false,
                                    .shard = {.world_size = 2}};
  auto ranks = ranks_of(options, source);
  for (auto& loader : ranks) {
    loader->load_state_dict(state);
    loader->start_epoch(0);
  }
  CHECK(joined(step(ranks)) == Numbers{0, 1, 2, 3});  // 4 does not fill a batch before 5 to 9, which are over
  CHECK(joined(step(ranks)) == Numbers{10, 11, 12, 13});
  std::vector<State> states;
  for (auto& loader : ranks) {
    states.push_back(loader->state_dict());
  }
  Loader rest(source(), alone);
  rest.load_state_dict(Loader::merge_states(states));
  CHECK(rest.samples() == 14);
  rest.start_epoch(0);
  REQUIRE(rest.next());
  CHECK(rest.batch().values == Numbers{14, 15});
}

TEST_CASE("Loader: states of ranks that do not belong together are refused", "[data]") {
  const auto state_of = [](std::int64_t rank, std::int64_t epoch, std::int64_t world_size) {
    Loader loader(std::make_shared<Computed>(40), {.batch_size = 2,
                                                   .split = "train",
                                                   .num_workers = 1,
                                                   .in_order = false,
                                                   .shard = {.rank = rank, .world_size = world_size}});
    loader.start_epoch(epoch);
    REQUIRE(loader.next());
    return loader.state_dict();
  };
  Loader alone(std::make_shared<Computed>(40), {.batch_size = 2, .split = "train"});
  const State of_one = state_of(0, 0, 2);
  CHECK(error_of<danling::StateError>([&] { alone.load_state_dict(of_one); }) ==
        "[data.loader] expected the state of all processes, got that of one of them, which delivered batches out of "
        "order (split 'train'); LoaderBase::merge_states combines the states of all");
  CHECK(error_of<danling::StateError>([&] { Loader::merge_states({}); }) ==
        "[data.loader] expected the states of all processes, got none");
  CHECK(error_of<danling::StateError>([&] { Loader::merge_states(std::vector{of_one}); }) ==
        "[data.loader] expected the states of 2 processes, got 1");
  CHECK(error_of<danling::StateError>([&] { Loader::merge_states(std::vector{of_one, of_one}); }) ==
        "[data.loader] expected one state of each rank, got rank 0 twice or outside of 2");
  CHECK(error_of<danling::StateError>([&] { Loader::merge_states(std::vector{of_one, state_of(1, 1, 2)}); }) ==
        "[data.loader] expected states of one epoch and layout, got another 'epoch' of rank 1");
  const State merged = Loader::merge_states(std::vector{of_one, state_of(1, 0, 2)});
  alone.load_state_dict(merged);
  CHECK(alone.samples() == 4);
}

TEST_CASE("Loader: states of before there were workers still load", "[data]") {
  data::RandomSampler order(10, 4, "train");
  State state;
  state["epoch"] = 1;
  state["samples"] = 4;
  state["batches"] = 2;
  state["sampler"] = order.state_dict();
  Loader loader(std::make_shared<Computed>(10), {.batch_size = 2, .shuffle = true, .seed = 4, .split = "train"});
  loader.load_state_dict(state);
  loader.start_epoch(1);
  order.set_epoch(1);
  Numbers expected(6);
  order.fill(4, expected);
  CHECK(drain(loader) == expected);
}

}  // namespace loader_resume_test

}  // namespace
