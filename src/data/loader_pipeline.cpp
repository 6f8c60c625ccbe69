#include <data/loader_pipeline.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>

namespace danling::inline v0::data::detail {

Pipeline::~Pipeline() = default;

std::unique_ptr<BatchSlot> make_slots(const BatchReader& reader, std::int64_t parts) {
  auto slot = reader.make_slot();
  for (std::int64_t i = 1; i < parts; ++i) {
    slot->others.push_back(reader.make_slot());
  }
  return slot;
}

void DirectPipeline::start(Planner& planner) {
  planner_ = &planner;
  planned_ = 0;
  ended_ = false;
}

bool DirectPipeline::plan_ahead() {
  if (!ahead_->planned && !ended_) {
    ended_ = !planner_->plan(*ahead_);
    ahead_->planned = !ended_;
    ahead_->number = planned_;
    planned_ += ended_ ? 0 : 1;
    ahead_->stage = BatchSlot::Stage::waiting;
  }
  return ahead_->planned;
}

bool DirectPipeline::read_ahead() {
  if (ahead_->stage != BatchSlot::Stage::ready) {
    if (ahead_->stage == BatchSlot::Stage::failed) {
      planner_->replan(*ahead_);
    }
    ahead_->stage = BatchSlot::Stage::failed;  // unless the read below succeeds
    if (!read_slot(reader_, *planner_, *ahead_)) {
      ahead_->drop_parts();
      ahead_->planned = false;
      ended_ = true;
      return false;
    }
    ahead_->stage = BatchSlot::Stage::ready;
  }
  return true;
}

BatchSlot* DirectPipeline::next() {
  const c10::NoGradGuard no_grad;  // as in workers
  current_->drop_parts();          // first, so that the new batch can reuse its memory
  if (error_ != nullptr) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  if (!plan_ahead() || !read_ahead()) {
    return nullptr;
  }
  ahead_->planned = false;
  std::swap(current_, ahead_);
  return current_.get();
}

bool DirectPipeline::ended() {
  const c10::NoGradGuard no_grad;
  try {
    return !plan_ahead() || (planner_->confirmed_by_read() && !read_ahead());
  } catch (...) {
    error_ = std::current_exception();
    return false;
  }
}

void DirectPipeline::stop() {
  current_->drop_parts();
  ahead_->drop_parts();
  ahead_->planned = false;
  error_ = nullptr;
  ended_ = true;
}

}  // namespace danling::inline v0::data::detail
