#include <danling/data/loader_visit.hpp>

#include <utility>

#include <danling/core/error.hpp>

#include <data/loader_engine.hpp>

namespace danling::inline v0::data {

std::int64_t LoaderBase::begin_visit(std::int64_t epoch, bool keep) {
  detail::LoaderEngine& engine = detail::engine_of(engine_);
  check<StateError>(!keep || options_.in_order || options_.shard.world_size == 1, "data.loader",
                    "expected in_order: true for a loader that returns to its position after an evaluation, got "
                    "false with ",
                    options_.shard.world_size, " processes", detail::of_split(options_.split),
                    ", where one of them does not know the position; set in_order, or evaluate another split");
  check<StateError>(!keep || saved_position_ || is_last_share(), "data.loader",
                    "expected a loader between global batches, got one that has delivered ", part_ + 1, " of ",
                    num_shares(), " parts", detail::of_split(options_.split),
                    "; it could not return there after an evaluation: read the other parts first");
  const bool claimed = engine.claim_source();  // before its state is read: workers of another loader may be reading it
  std::optional<State> kept = std::move(saved_position_);
  bool in_epoch = saved_in_epoch_;
  try {
    if (keep && !kept) {
      kept = state_dict();
      (*kept)["global_step"] = global_step_ + missed_steps();
      in_epoch = resumes_ || (started_ && !loaded_);  // resumes_: nothing was read since another visit
    }
    saved_position_.reset();
    loaded_ = false;  // otherwise start_epoch would resume that state
    start_epoch(epoch);
  } catch (...) {
    saved_position_ = std::move(kept);
    saved_in_epoch_ = in_epoch;
    if (claimed) {
      engine.claim.release();
    }
    throw;
  }
  saved_position_ = std::move(kept);
  saved_in_epoch_ = in_epoch;
  return visit_.get();
}

void LoaderBase::restore_position() {
  const bool in_epoch = saved_in_epoch_;
  load_state_dict(State(*saved_position_));
  resumes_ = in_epoch;
}

LoaderVisit::LoaderVisit(LoaderBase& loader, std::int64_t epoch, bool keep)
    : loader_(&loader), visit_(loader.begin_visit(epoch, keep)) {}

LoaderVisit::~LoaderVisit() {
  try {
    end();
  } catch (...) {  // the loader keeps the position and retries later
  }
}

bool LoaderVisit::next() {
  check<StateError>(loader_ != nullptr && visit_ == loader_->visit_.get(), "data.loader",
                    "expected a visit in progress, got one that has ended: something else used the loader");
  return loader_->advance();
}

void LoaderVisit::end() {
  LoaderBase* const loader = std::exchange(loader_, nullptr);
  if (loader != nullptr && visit_ == loader->visit_.get() && loader->saved_position_) {
    ++loader->visit_;
    loader->restore_position();
  }
}

}  // namespace danling::inline v0::data
