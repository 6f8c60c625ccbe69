// Loaders with and without workers through the same calls, drawn by chance; every state is loaded again.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <danling/data/loader_visit.hpp>

#include "loader_kinds.hpp"

namespace {

namespace loader_calls_test {

using namespace loader_test;

/// The results of one sequence of calls, which must be equal for all loaders.
struct Outcome {
  Batches batches;
  std::vector<State> states;
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  std::int64_t samples = 0;
  std::int64_t global_step = 0;
};

struct Call {
  int what = 0;
  std::int64_t epoch = 0;
  std::int64_t count = 0;
  bool flag = false;
  State state;  // to load
};

void read(Walker& walker, std::int64_t count, Outcome& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (const auto batch = walker.next(walker.loader())) {
      out.batches.push_back(*batch);
    }
  }
}

Outcome make_call(Walker& walker, const Call& call) {
  Outcome out;
  Loader& loader = walker.loader();
  switch (call.what) {
    case 0:
      loader.start_epoch(call.epoch);
      read(walker, call.count, out);
      break;
    case 1: {  // roll back
      loader.load_state_dict(call.state);
      if (call.flag) {
        loader.start_epoch(std::max<std::int64_t>(loader.epoch(), 0));
      }
      break;
    }
    case 2: {  // an evaluation in the middle, saved inside, left early or read to its end
      data::LoaderVisit visit(loader, call.epoch, true);
      for (std::int64_t i = 0; i < call.count; ++i) {
        if (const auto batch = walker.next(visit)) {
          out.batches.push_back(*batch);
        }
        out.states.push_back(loader.state_dict());
      }
      if (call.flag) {
        data::LoaderVisit inner(loader, call.epoch + 1, true);
        if (const auto batch = walker.next(inner)) {
          out.batches.push_back(*batch);
        }
        out.states.push_back(loader.state_dict());
      }
      break;
    }
    case 3:  // a pass that breaks
      try {
        for (Records& batch : loader) {
          out.batches.push_back(batch.values);
          if (static_cast<std::int64_t>(out.batches.size()) > call.count) {
            break;
          }
        }
      } catch (const danling::DataError&) {
        read(walker, 1, out);
      }
      break;
    case 4: {  // a state that does not fit
      State wrong = call.state;
      wrong["samples"] = -5;
      CHECK_THROWS_AS(loader.load_state_dict(wrong), danling::StateError);
      break;
    }
    case 5:
      walker.move();
      break;
    default:
      read(walker, call.count, out);
  }
  out.states.push_back(walker.loader().state_dict());
  out.epoch = walker.loader().epoch();
  out.position = walker.loader().position();
  out.samples = walker.loader().samples();
  out.global_step = walker.loader().global_step();
  return out;
}

void check_same(const Outcome& got, const Outcome& expected, bool fair) {
  REQUIRE(got.batches == expected.batches);
  REQUIRE(got.epoch == expected.epoch);
  REQUIRE(got.position == expected.position);
  REQUIRE(got.samples == expected.samples);
  REQUIRE(got.global_step == expected.global_step);
  REQUIRE(got.states.size() == expected.states.size());
  for (std::size_t i = 0; i < got.states.size(); ++i) {
    State own = got.states[i];
    State other = expected.states[i];
    if (!fair) {  // a batch that fails when it is looked for is no end, wherever it failed first
      own.map().erase("finished");
      other.map().erase("finished");
    }
    REQUIRE(danling::first_difference(own, other) == "");
  }
}

TEST_CASE("Loader: whatever is called, with any number of workers, the same batches and states come", "[data]") {
  Draw draw(31);
  for (int round = 0; round < 160; ++round) {
    const int kind = round % num_kinds;
    data::LoaderOptions options{.batch_size = draw(1, 9), .drop_last = draw(0, 1) == 1, .split = "train"};
    if (draw(0, 2) == 0) {
      options.snapshot_every_n_steps = draw(1, 3);
    }
    const std::vector<Batches> expected = undisturbed(kind, options);
    const bool slow = draw(0, 1) == 1;
    const bool fair = draw(0, 1) == 1;
    std::vector<std::unique_ptr<Walker>> walkers;
    for (std::int64_t workers = 0; workers < 4; ++workers) {
      walkers.push_back(std::make_unique<Walker>(kind, options, workers, draw(0, 1) == 1));
      walkers.back()->weather().set(slow);
    }
    std::vector<State> saved = {walkers[0]->loader().state_dict()};
    for (int step = 0; step < 14; ++step) {
      Call call{static_cast<int>(draw(0, 9)), draw(0, 2), draw(0, 7), draw(0, 1) == 1, {}};
      call.state = saved[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(saved.size()) - 1))];
      CAPTURE(round, kind, step, call.what, call.epoch, call.count, call.flag, options.batch_size, options.drop_last,
              options.snapshot_every_n_steps.value_or(0), slow, fair);
      std::map<std::int64_t, int> failures;
      for (int i = 0; i < 3 && !fair; ++i) {
        failures[draw(0, 42) + draw(0, 1) * 1000] = 1;
      }
      std::optional<Outcome> first;
      for (std::size_t i = 0; i < walkers.size(); ++i) {
        CAPTURE(i);
        walkers[i]->weather().set(slow, call.what == 3 ? std::map<std::int64_t, int>() : failures);
        const Outcome outcome = make_call(*walkers[i], call);
        if (!first) {
          first = outcome;
        }
        check_same(outcome, *first, fair);
      }
      saved.push_back(first->states.back());
      const State& state = saved.back();
      const std::int64_t epoch = state.at("epoch").integer();
      if (epoch < 0) {
        continue;
      }
      // A fresh loader delivers the rest of the epoch that the state names.
      Walker fresh(kind, options, draw(0, 3), false);
      fresh.loader().load_state_dict(state);
      REQUIRE(danling::first_difference(fresh.loader().state_dict(), state) == "");
      fresh.loader().start_epoch(epoch);
      const Batches& all = expected[static_cast<std::size_t>(epoch)];
      REQUIRE(rest_of(fresh.loader()) == Batches(all.begin() + state.at("batches").integer(), all.end()));
    }
  }
}

}  // namespace loader_calls_test

}  // namespace
