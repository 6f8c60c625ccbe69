// State of each rank, such as its generators: gathered for a checkpoint and restored to each rank.
#include <span>
#include <utility>

#include <danling/data/loader_base.hpp>
#include <danling/distributed/group.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>

#include <checkpoint/state_archive.hpp>
#include <runner/rank_messages.hpp>
#include <runner/restorer.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

// With several ranks, only the rank itself knows the batches that its loader with `in_order: false` delivered.
bool is_of_one_rank(const State& loader) { return loader.is_map() && loader.find("of_rank") != nullptr; }

// Initial generator states of this process; does not change the generators.
State initial_generators(std::uint64_t seed) {
  RunnerRNGState now;
  RunnerRNGState fresh;
  now.capture();
  seed_generators(seed);
  fresh.capture();
  now.restore();
  return fresh.state_dict();
}

}  // namespace

State BaseRunner::Internals::Saver::rank_state() {
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
  if (State pass = runner_.pass_state(); pass.is_map()) {
    out["pass"] = std::move(pass);
  }
  if (State exchange = runner_.parallelism_->state_dict(); !exchange.is_null()) {
    out["parallelism"] = std::move(exchange);
  }
  if (runner_.fault_ != nullptr && runner_.services_->recorder != nullptr) {
    runner_.services_->recorder->save_lines(out["records"]);
  }
  return out;
}

std::shared_ptr<State> BaseRunner::Internals::Saver::gather_rank_states() {
  State& held = runner_.services_->ranks;
  if (!runner_.distributed() || held.is_map()) {
    return nullptr;
  }
  State gathered;
  std::vector<State>& passes = runner_.services_->passes;
  std::int64_t number = 0;
  passes.clear();
  for (const auto& bytes : detail::exchange(runner_.group(), pack_state(rank_state()))) {
    State rank = unpack_state(bytes);
    if (const State* pass = rank.find("pass")) {
      passes.push_back(*pass);
      rank.map().erase("pass");  // saved as one state of all ranks
    }
    if (const State* records = rank.find("records")) {
      runner_.services_->records = *records;
      rank.map().erase("records");
    }
    gathered[to_text(number++)] = std::move(rank);
  }
  held = std::move(gathered);
  return {&held, [&passes](State* states) {
            *states = State();
            passes.clear();
          }};
}

// The exchange of gradients may have a state, such as PowerSGD's. It is valid only for the same number of ranks.
void BaseRunner::Internals::Restorer::load_parallelism(const State* ranks) {
  const bool fits = ranks != nullptr && std::ssize(ranks->map()) == runner_.world_size();
  const State* rank = ranks != nullptr ? ranks->find(to_text(fits ? runner_.rank() : 0)) : nullptr;
  const State* own = rank != nullptr ? rank->find("parallelism") : nullptr;
  const std::string left_out = runner_.parallelism_->load_state_dict(own != nullptr ? *own : State());
  if (!left_out.empty()) {
    runner_.logger().warning(concat("runner.load_checkpoint: does not restore ", left_out));
  }
}

State BaseRunner::Internals::Restorer::of_this_rank(const State& checkpoint) {
  const State* ranks = runner_.excluded_from_loading("ranks") ? nullptr : checkpoint.find("ranks");
  if (ranks == nullptr && !runner_.distributed()) {
    return checkpoint;
  }
  State out = checkpoint;
  load_parallelism(ranks);
  const auto saved = ranks != nullptr ? std::ssize(std::as_const(*ranks).map()) : 1;
  if (State* state = out.map().find("state"); state != nullptr && state->find("rng") != nullptr) {
    const State* grid = checkpoint.find("parallel");
    const auto from = runner_.parallelism_->generators_from(grid != nullptr ? grid->at("axes") : State(), saved);
    if (const State* own = ranks != nullptr && from ? ranks->find(to_text(*from)) : nullptr) {
      (*state)["rng"] = own->at("rng");
    } else if (!from) {  // "state" has the generators of rank 0
      const State* seed = runner_.config().seed ? nullptr : checkpoint.find("seed");
      const std::uint64_t of_run = seed != nullptr ? static_cast<std::uint64_t>(seed->integer()) : runner_.seed_;
      (*state)["rng"] = initial_generators(runner_.parallelism_->seed(of_run));
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
  if (saved != runner_.world_size() && !runner_.parallelism_->computes_shards()) {
    runner_.logger().warning(concat("runner.load_checkpoint: the checkpoint has ", saved,
                                    " processes and this run has ", runner_.world_size(),
                                    ": ranks in the checkpoint restore their generators, others seed theirs; random ",
                                    "numbers differ from those of an uninterrupted run, and an update has more or "
                                    "fewer samples if other ranks read dataloader.batch_size of them"));
  }
  return out;
}

}  // namespace danling::inline v0
