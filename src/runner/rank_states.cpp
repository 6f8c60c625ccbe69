// State that is one rank's own, as its generators: gathered for a checkpoint, and given back to each rank.
#include <danling/runner/base_runner.hpp>

#include <span>
#include <utility>

#include <danling/data/loader_base.hpp>
#include <danling/distributed/group.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>

#include "checkpoint/state_archive.hpp"
#include "runner/agreement.hpp"
#include "runner/restorer.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

// A loader of `in_order: false` among several ranks knows what it has delivered itself.
bool is_of_one_rank(const State& loader) { return loader.is_map() && loader.find("of_rank") != nullptr; }

// What the generators of this process begin with, which are left as they are.
State generators_of(std::uint64_t seed) {
  RunnerRNGState now;
  RunnerRNGState fresh;
  now.capture();
  seed_generators(seed);
  fresh.capture();
  now.restore();
  return fresh.state_dict();
}

}  // namespace

State BaseRunner::Saver::rank_state() {
  if (!runner_.rng_frozen_) {
    runner_.state_.rng.capture();
  }
  State out;
  out["rng"] = runner_.state_.rng.state_dict();
  const State loaders = runner_.dataloader_state();
  for (const auto& [split, state] : loaders.map()) {
    if (is_of_one_rank(state)) {
      out["dataloaders"][split] = state;
    }
  }
  return out;
}

std::shared_ptr<State> BaseRunner::Saver::gather_rank_states() {
  State& held = runner_.services_->ranks;
  if (!runner_.distributed() || held.is_map()) {
    return nullptr;
  }
  State gathered;
  std::int64_t number = 0;
  for (const auto& bytes : runner_.group().all_gather(pack_state(rank_state()))) {
    if (bytes == failed_message) {
      Agreement::fail_with_others();
    }
    gathered[to_text(number++)] = unpack_state(bytes);
  }
  held = std::move(gathered);
  return {&held, [](State* states) { *states = State(); }};
}

State BaseRunner::Restorer::of_this_rank(const State& checkpoint) {
  const State* ranks = runner_.excluded_from_loading("ranks") ? nullptr : checkpoint.find("ranks");
  if (ranks == nullptr && !runner_.distributed()) {
    return checkpoint;
  }
  State out = checkpoint;
  const auto saved = ranks != nullptr ? std::ssize(std::as_const(*ranks).map()) : 1;
  if (State* state = out.map().find("state"); state != nullptr && state->find("rng") != nullptr) {
    if (const State* own = ranks != nullptr ? ranks->find(to_text(runner_.rank())) : nullptr) {
      (*state)["rng"] = own->at("rng");
    } else if (runner_.rank() > 0) {  // "state" has those of rank 0
      const State* seed = runner_.config().seed ? nullptr : checkpoint.find("seed");
      const std::uint64_t of_run = seed != nullptr ? static_cast<std::uint64_t>(seed->integer()) : runner_.seed_;
      (*state)["rng"] = generators_of(runner_.parallelism_->seed(of_run));
    }
  }
  if (State* loaders = ranks != nullptr ? out.map().find("dataloaders") : nullptr) {
    const State all = *loaders;
    for (const auto& [split, loader] : all.map()) {
      if (!is_of_one_rank(loader)) {
        continue;
      }
      std::vector<State> states;
      for (const auto& entry : ranks->map()) {
        states.push_back(entry.value.at("dataloaders").at(split));
      }
      (*loaders)[split] = data::LoaderBase::merge_states(states);
    }
  }
  if (saved != runner_.world_size()) {
    runner_.logger().warning(concat("runner.load_checkpoint: the checkpoint is of ", saved,
                                    " processes and this run of ", runner_.world_size(),
                                    ": ranks that it has go on with their generators, others begin with those ",
                                    "of the seed, so that what is drawn at random is not what it would have been"));
  }
  return out;
}

}  // namespace danling::inline v0
