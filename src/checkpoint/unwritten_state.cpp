#include <checkpoint/unwritten_state.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <checkpoint/staging.hpp>

namespace danling::inline v0 {
namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

struct UnwrittenState::Kept {
  Publication what;                // without the names
  std::vector<std::string> names;  // names still missing
  std::string error;               // the error to report once no name is missing
  StagingBuffer memory;
  State state;
};

UnwrittenState::UnwrittenState() = default;
UnwrittenState::~UnwrittenState() = default;

bool is_best_missing(const Publication& what, const Published& done) {
  return holds(what.aliases, "best") && !holds(done.names, "best");
}

void UnwrittenState::keep(const Publication& what, const State& state, const Published& done) {
  const bool best = is_best_missing(what, done);
  const bool history = what.history && !holds(done.names, *what.history);
  if ((!best && !history) || (!best && kept_ != nullptr && holds(kept_->names, "best"))) {
    return;
  }
  kept_.reset();  // frees its memory first
  try {
    auto kept = std::make_unique<Kept>();
    kept->what = what;
    kept->what.weights.clear();
    kept->what.retried = true;
    if (best) {
      kept->names.emplace_back("best");
    }
    if (history) {
      kept->names.push_back(*what.history);
    }
    kept->error = holds(done.names, what.name) ? done.error : "";
    kept->state = kept->memory.stage(state, /*pinned=*/false);
    kept_ = std::move(kept);
  } catch (const std::exception&) {
    // checkpoint_health() reports the missing name.
  }
}

void UnwrittenState::discard() { kept_.reset(); }

void UnwrittenState::supersede(const Publication& newer) {
  if (kept_ != nullptr) {
    std::erase_if(kept_->names, [&](const auto& name) { return holds(newer.aliases, name); });
    if (kept_->names.empty()) {
      kept_.reset();
    }
  }
}

UnwrittenState::RetryResult UnwrittenState::retry(CheckpointDirectory& directory) {
  RetryResult out;
  if (kept_ == nullptr) {
    return out;
  }
  Publication what = kept_->what;
  what.name = kept_->names.front();
  what.aliases.assign(kept_->names.begin() + 1, kept_->names.end());
  if (what.history && !holds(kept_->names, *what.history)) {
    what.history.reset();
  }
  Published done = directory.publish(what, kept_->state);
  out.names = std::move(done.names);
  out.warning = std::move(done.warning);
  std::erase_if(kept_->names, [&](const auto& name) { return holds(out.names, name); });
  if (kept_->names.empty()) {
    out.name = kept_->error.empty() ? "" : kept_->what.name;
    out.error = std::move(kept_->error);
    kept_.reset();
  }
  return out;
}

}  // namespace danling::inline v0
