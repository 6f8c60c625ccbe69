// Saves and resumes a loader: the position as a handful of integers.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/data/loader_base.hpp>

#include <data/loader_engine.hpp>

namespace danling::inline v0::data {

namespace detail {

namespace {

using Group = GroupPlanner::Group;

bool has(const State& state, const char* name) { return state.map().contains(name); }

State tensor_of(const Group& group) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(group.size())}, at::kLong);
  std::copy(group.begin(), group.end(), out.mutable_data_ptr<std::int64_t>());
  return State(std::move(out));
}

Group group_of(const State& state, std::int64_t size) {
  const at::Tensor& records = state.tensor();
  check<StateError>(records.dim() == 1 && records.scalar_type() == at::kLong && records.numel() > 0 &&
                        records.is_cpu() && records.is_contiguous(),
                    "data.loader", "expected the records of a batch as integers, got another tensor");
  const auto* data = records.const_data_ptr<std::int64_t>();
  Group out(data, data + records.numel());
  for (const std::int64_t record : out) {
    check<StateError>(record >= 0 && record < size, "data.loader", "expected records in [0, ", size, "), got ", record);
  }
  return out;
}

// Saves the source's position after the newest delivered batch, and the batches that it overtook. Independent of
// read-ahead.
void save_position(State& state, const LoaderEngine& engine, bool in_order) {
  const auto place = engine.place ? engine.place : engine.snapshot_source();
  const auto overtaken = in_order ? std::vector<const BatchSlot*>() : engine.pipeline->overtaken(engine.newest);
  if (engine.batch_sampler != nullptr) {
    State::List pending;
    for (const BatchSlot* slot : overtaken) {
      pending.push_back(tensor_of(slot->group));
    }
    for (const Group& group : place->pending) {
      pending.push_back(tensor_of(group));
    }
    state["pending"] = std::move(pending);
    state["batch_sampler"] = place->state;
  } else {
    const Snapshot& first = overtaken.empty() ? *place : *overtaken.front()->snapshot;
    state["stream"] = first.state;
    state["stream_position"] = std::min(first.position, engine.end);
  }
}

void put_positions(State& state, const Ranges& done) {
  const std::int64_t first = done.first_gap();
  state["samples"] = first;
  if (done.count() > first) {
    state["delivered"] = done.to_state(first);
  }
}

Ranges positions_of(const State& state) {
  Ranges done;
  done.add({0, state.at("samples").integer()});
  if (has(state, "delivered")) {
    done.add(Ranges::from_state(state.at("delivered")));
  }
  return done;
}

template <class T>
void load_or_stay(T& object, const State& state) {
  const State before = clone(object.state_dict());
  try {
    object.load_state_dict(clone(state));  // the object may keep and change the tensors
  } catch (...) {
    object.load_state_dict(before);
    throw;
  }
}

const char* kind_of(const State& state) {
  return has(state, "stream") ? "stream" : has(state, "batch_sampler") ? "batch sampler" : "dataset";
}

// Returns the positions of the batches that each rank delivered. Most steps are common to all ranks, few are not.
Ranges joined(const EpochPlan& plan, const std::vector<Ranges>& steps) {
  Ranges all = steps.front();
  for (const Ranges& of_rank : steps) {
    all = all.intersection(of_rank);
  }
  Ranges done = plan.done();
  done.add(plan.positions(all));
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    const Ranges others = steps[rank].without(all);
    for (const Range& range : others.items()) {
      for (std::int64_t step = range.begin; step < range.end; ++step) {
        done.add(plan.positions_of_share(step, static_cast<std::int64_t>(rank)));
      }
    }
  }
  return done;
}

}  // namespace

}  // namespace detail

State LoaderBase::state_dict() const {
  const detail::LoaderEngine& engine = detail::engine_of(engine_);
  if (saved_position_) {
    return *saved_position_;
  }
  State state;
  state["epoch"] = epoch_;
  const bool of_rank = !options_.in_order && options_.shard.world_size > 1 && engine.planner != nullptr;
  if (engine.batch_sampler != nullptr) {
    state["samples"] = samples_;
  } else {
    detail::Ranges done = engine.done;
    if (!of_rank && engine.planner != nullptr) {
      done.add(engine.planner->context().plan.positions(engine.steps));
      done = done.below(engine.end);
    }
    detail::put_positions(state, done);
  }
  state["batches"] = batches_;
  state["global_step"] = global_step_;
  state["seed"] = static_cast<std::int64_t>(engine.seed);  // the same 64 bits
  state["split"] = engine.split;
  if (of_rank) {
    State own;
    own["rank"] = options_.shard.rank;
    own["world_size"] = options_.shard.world_size;
    own["padding"] = options_.shard.padding;
    own["batch_size"] = options_.batch_size;
    own["drop_last"] = options_.drop_last;
    own["size"] = engine.sampler != nullptr ? State(engine.sampler->size()) : State();
    own["steps"] = engine.steps.to_state();
    state["of_rank"] = std::move(own);
  }
  if (finished_) {
    state["finished"] = true;
  }
  if (engine.sampler != nullptr) {
    state["sampler"] = engine.sampler->state_dict();
  } else {
    detail::save_position(state, engine, options_.in_order);
  }
  return state;
}

// Loads the source's part of the state. If the source rejects it, it stays unchanged.
std::shared_ptr<const detail::Snapshot> LoaderBase::load_source(const State& state, std::int64_t samples) {
  const detail::LoaderEngine& engine = *engine_;
  if (engine.sampler != nullptr) {
    detail::load_or_stay(*engine.sampler, state.at("sampler"));
    return nullptr;
  }
  auto place = std::make_shared<detail::Snapshot>();
  place->position = samples;
  if (engine.batch_sampler != nullptr) {
    for (const State& group : state.at("pending").items()) {
      place->pending.push_back(detail::group_of(group, *engine.reader->size()));
    }
    place->state = state.at("batch_sampler");
    detail::load_or_stay(*engine.batch_sampler, place->state);
    return place;
  }
  if (const State* position = state.map().find("stream_position")) {
    place->position = position->integer();
  }
  place->state = state.at("stream");
  check<StateError>(place->position >= 0 && place->position <= samples, "data.loader",
                    "expected a stream that was saved at or before sample ", samples, ", got ", place->position);
  try {
    engine.reader->load_state_dict(place->state);
  } catch (...) {
    if (engine.planner != nullptr) {
      static_cast<detail::StreamPlanner&>(*engine.planner).invalidate_position();
    } else if (engine.place != nullptr) {
      engine.reader->load_state_dict(engine.place->state);
    }
    throw;
  }
  return place;
}

void LoaderBase::load_state_dict(const State& state) {
  detail::LoaderEngine& engine = detail::engine_of(engine_);
  const std::string split = detail::of_split(options_.split);
  const std::int64_t epoch = state.at("epoch").integer();
  const std::int64_t samples = state.at("samples").integer();
  const std::int64_t batches = state.at("batches").integer();
  const char* const kind = detail::kind_of(state);
  const char* const own_kind = engine.is_stream() ? "stream" : engine.sampler != nullptr ? "dataset" : "batch sampler";
  check<StateError>(std::string_view(kind) == own_kind, "data.loader", "expected the state of a ", own_kind,
                    ", got that of a ", kind, split);
  check<StateError>(epoch >= -1 && samples >= 0 && batches >= 0, "data.loader",
                    "expected an epoch of at least -1 and a position of at least 0, got epoch ", epoch, ", samples ",
                    samples, ", batches ", batches, split);
  check<StateError>(!detail::has(state, "of_rank"), "data.loader",
                    "expected the state of all processes, got that of one of them, which delivered batches out of "
                    "order",
                    split, "; LoaderBase::merge_states combines the states of all");
  detail::Ranges done = detail::positions_of(state);
  const auto size = engine.order_size();
  const std::string_view other_data =
      "; the data had more samples when the state was saved (a run begins them anew with "
      "checkpoint.exclude_from_loading: [dataloaders])";
  const std::int64_t end = done.items().empty() ? 0 : done.items().back().end;
  check<StateError>(!size || end <= *size, "data.loader", "expected a position of at most ", size.value_or(0),
                    " samples, got ", end, split, other_data);
  check<StateError>(end <= (std::int64_t{1} << 60), "data.loader", "expected a position below 2^60, got ", end, split);
  check<StateError>(size || detail::EpochPlan(size, done, engine.layout).all_have_samples(), "data.loader",
                    "expected a state in which every gap has samples for ", engine.layout.shard.world_size,
                    " processes, got a smaller gap", split, "; resume with fewer processes");
  const auto number = [&](const char* name, std::int64_t otherwise) {
    const State* found = state.map().find(name);
    return found != nullptr ? found->integer() : otherwise;
  };
  const State* sampler = state.map().find("sampler");
  const State* sampler_seed = sampler != nullptr && sampler->is_map() ? sampler->map().find("seed") : nullptr;
  const std::int64_t given_seed = static_cast<std::int64_t>(options_.seed);
  const std::int64_t seed = number("seed", sampler_seed != nullptr ? sampler_seed->integer() : given_seed);
  const std::int64_t global_step = number("global_step", batches);
  std::string key_split = detail::has(state, "split") ? state.at("split").string() : options_.split;
  const State* finished = state.map().find("finished");
  const bool is_finished = finished != nullptr && finished->boolean();
  std::shared_ptr<const detail::Snapshot> place;
  const bool claimed = engine.claim_source();
  engine.pipeline->pause();  // until `rewind` stops them: workers that plan would move the source
  const auto stay = [&] {
    engine.pipeline->resume();
    if (claimed) {
      engine.claim.release();
    }
  };
  try {
    place = load_source(state, samples);
  } catch (const StateError& error) {
    stay();
    throw StateError(concat(error.what(), split));
  } catch (...) {
    stay();
    throw;
  }
  rewind(epoch);
  if (epoch < 0 || is_finished) {
    engine.claim.release();
  }
  engine.place = std::move(place);
  engine.done = std::move(done);
  engine.seed = static_cast<std::uint64_t>(seed);
  engine.split = std::move(key_split);
  samples_ = engine.batch_sampler != nullptr ? samples : engine.done.count();
  batches_ = engine.sampler != nullptr ? detail::rounded_up(samples_, engine.layout.global()) : batches;
  global_step_ = global_step;
  finished_ = is_finished;
  started_ = false;
  loaded_ = true;
  resumes_ = false;
  saved_position_.reset();
}

State LoaderBase::merge_states(std::span<const State> states) {
  check<StateError>(!states.empty(), "data.loader", "expected the states of all processes, got none");
  State merged = states.front();
  const State* own = merged.map().find("of_rank");
  if (own == nullptr) {
    return merged;
  }
  const auto world_size = own->at("world_size").integer();
  check<StateError>(world_size == static_cast<std::int64_t>(states.size()), "data.loader", "expected the states of ",
                    world_size, " processes, got ", states.size());
  const State* size = own->map().find("size");
  detail::Layout layout{
      own->at("batch_size").integer(), {0, world_size, own->at("padding").boolean()}, own->at("drop_last").boolean()};
  const detail::EpochPlan plan(size->is_null() ? std::nullopt : std::optional(size->integer()),
                               detail::positions_of(merged), layout);
  std::vector<detail::Ranges> steps(states.size());
  std::vector<bool> seen(states.size());
  const State* earliest = &merged;
  for (const State& state : states) {
    const State& of_rank = state.at("of_rank");
    const std::int64_t rank = of_rank.at("rank").integer();
    check<StateError>(rank >= 0 && rank < world_size && !seen[static_cast<std::size_t>(rank)], "data.loader",
                      "expected one state of each rank, got rank ", rank, " twice or outside of ", world_size);
    seen[static_cast<std::size_t>(rank)] = true;
    steps[static_cast<std::size_t>(rank)] = detail::Ranges::from_state(of_rank.at("steps"));
    const auto same = [&](const char* name) {
      check<StateError>(bitwise_equal(state.at(name), states.front().at(name)), "data.loader",
                        "expected states of one epoch and layout, got another ", quote(name), " of rank ", rank);
    };
    same("epoch");
    same("samples");
    same("seed");
    for (const char* const name : {"batch_size", "world_size", "padding", "drop_last", "size"}) {
      check<StateError>(bitwise_equal(of_rank.at(name), own->at(name)), "data.loader",
                        "expected states of one epoch and layout, got another ", quote(name), " of rank ", rank);
    }
    if (detail::has(state, "stream") &&
        state.at("stream_position").integer() < earliest->at("stream_position").integer()) {
      earliest = &state;
    }
  }
  detail::put_positions(merged, detail::joined(plan, steps));
  if (detail::has(merged, "stream")) {
    const State stream = earliest->at("stream");
    const State position = earliest->at("stream_position");
    merged["stream"] = stream;
    merged["stream_position"] = position;
  }
  merged.map().erase("of_rank");
  return merged;
}

}  // namespace danling::inline v0::data
