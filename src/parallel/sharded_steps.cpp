// Sharded parameters during a step: when units are gathered, freed and reduced.
#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_parameters.hpp>
#include <parallel/sharded_tensor.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view step_where = "parallel.fsdp";

/// '1' for each position at which any rank has '1'.
std::string any_of_ranks(const Group& group, const std::string& flags) {
  std::string out = flags;
  for (const std::string& rank : group.all_gather(flags)) {
    for (std::size_t at = 0; at < out.size(); ++at) {
      out[at] = std::max(out[at], rank[at]);
    }
  }
  return out;
}

void check_dense(const ShardUnit& unit, const std::vector<at::Tensor>& gradients) {
  for (std::size_t at = 0; at < gradients.size(); ++at) {
    check<StateError>(!gradients[at].defined() || gradients[at].layout() == at::kStrided, step_where,
                      "expected dense gradients of sharded parameters, got a sparse one of ",
                      quote(unit.parameters()[at].name), "; create the embedding with sparse(false)");
  }
}

}  // namespace

void ShardedParameters::enter_step() {
  check<StateError>(!is_stale_, step_where,
                    "expected update_parameters() between an update and the next step, which all ranks need with stage "
                    "1 and 2, got a step");
  check_unchanged_flags();
  ++steps_;
}

// A unit was built for the parameters that required gradients then. With stage 1 and 2, freezing has its effect.
void ShardedParameters::check_unchanged_flags() const {
  for (const auto& unit : units_) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      const bool trains = parameter.parameter.requires_grad();
      const bool did = layout_.plain ? parameter.rows.requires_grad() : parameter.whole.requires_grad();
      if (trains != did && !(layout_.plain && did)) [[unlikely]] {
        fail<StateError>(step_where, "expected ", quote(parameter.name), did ? " to be trained" : " to be frozen",
                         ", as when the model was sharded, got requires_grad ", trains ? "true" : "false",
                         "; set it in the runner's constructor, or use `stack: ddp`, where it may change between "
                         "updates");
      }
    }
  }
}

void ShardedParameters::leave_step() {
  if (--steps_ > 0) {
    return;
  }
  // Called by destructors, which must not throw: if a rank has ended, the next collective throws.
  try {
    release_all();
    // With a graph, finish_backward() follows. During an exception, another exception must not replace it.
    if (has_begun_ && traffic_ != nullptr && !layout_.plain && !has_graph_ && std::uncaught_exceptions() == 0) {
      traffic_->end();
    }
  } catch (const DistributedError&) {
  }
  end_gathers();
  if (!layout_.plain) {
    order_.clear();
  }
  reduced_ = 0;
}

// The next use gathers again, also inside the same step: an update may come in between, as with several models.
void ShardedParameters::end_gathers() {
  if (std::exchange(has_begun_, false) && !layout_.plain) {
    before_[has_graph_ ? 1 : 0] = std::exchange(gathers_, {});
  }
}

void ShardedParameters::release_all() {
  std::exception_ptr error;
  for (ShardUnit* unit : std::exchange(started_, {})) {
    try {
      if (std::uncaught_exceptions() == 0 && error == nullptr) {
        traffic_->finish_gather(*unit);
      }
    } catch (...) {
      error = std::current_exception();  // frees the units first: they have no values
    }
  }
  for (const auto& unit : units_) {
    unit->release();
  }
  in_use_ = nullptr;
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

void ShardedParameters::use(const Order& together) {
  for (ShardUnit* const unit : together) {
    use(*unit, together);
  }
}

// Does not free a unit that the same operator uses; it stays gathered until the end of the pass.
void ShardedParameters::use(ShardUnit& unit, const Order& together) {
  if (!is_root(unit) && in_use_ != &unit) {
    if (in_use_ != nullptr && reshards_ && std::find(together.begin(), together.end(), in_use_) == together.end()) {
      in_use_->release();
    }
    in_use_ = &unit;
  }
  if (std::find(order_.begin(), order_.end(), &unit) == order_.end()) {
    // The rest of the model completes last, whenever it was first used.
    order_.insert(is_root(unit) ? order_.begin() : order_.end(), &unit);
  }
  if (!unit.is_whole()) {
    gather(unit);
  }
}

void ShardedParameters::gather(ShardUnit& unit) {
  if (!has_begun_) {
    has_begun_ = true;
    has_graph_ = at::GradMode::is_enabled();
    gathers_.clear();
    if (traffic_->must_begin()) {
      announce('g', unit);
      traffic_->begin();
    }
  }
  gathers_.push_back(&unit);
  start_gather(unit);
  // Prefetches the next units of the last step while this one computes.
  const Order& before = before_[has_graph_ ? 1 : 0];
  const std::size_t place = gathers_.size();
  if (place <= before.size() && std::equal(gathers_.begin(), gathers_.end(), before.begin())) {
    for (std::size_t next = place; next < std::min(place + prefetch_, before.size()); ++next) {
      if (!before[next]->is_whole()) {
        start_gather(*before[next]);
      }
    }
  }
  finish_gather(unit);
}

void ShardedParameters::start_gather(ShardUnit& unit) {
  if (std::find(started_.begin(), started_.end(), &unit) != started_.end()) {
    return;
  }
  if (traffic_->meets_to_gather()) {
    announce('g', unit);
  }
  traffic_->start_gather(unit);
  started_.push_back(&unit);
}

void ShardedParameters::finish_gather(ShardUnit& unit) {
  started_.erase(std::find(started_.begin(), started_.end(), &unit));
  traffic_->finish_gather(unit);
}

void ShardedParameters::announce(char kind, const ShardUnit& unit) const {
  if (announcer_) {
    const auto place =
        std::find_if(units_.begin(), units_.end(), [&](const auto& known) { return known.get() == &unit; });
    announcer_(kind, static_cast<std::size_t>(place - units_.begin()));
  }
}

void ShardedParameters::join_collective(char kind, std::size_t unit) {
  ShardUnit& followed = *units_.at(unit);
  if (kind == 'r') {
    reduce(followed, followed.take_gradients());
  } else if (traffic_->meets_to_gather()) {
    traffic_->start_gather(followed);
    traffic_->finish_gather(followed);
    followed.release();
  } else {
    traffic_->follow();
  }
}

// Ranks must reduce in the same order, so a unit waits for units that were used after it. If a unit never completes, as
// with a parameter that the loss does not depend on, finish_backward() reduces the rest.
void ShardedParameters::on_gradient(ShardUnit& unit, std::size_t parameter) {
  unit.parameters()[parameter].has_new = sync_;
  if (!unit.is_complete()) {
    return;
  }
  const auto place = std::find(order_.rbegin(), order_.rend(), &unit) - order_.rbegin();
  if (static_cast<std::size_t>(place) < reduced_) {
    reduced_ = 0;  // a new backward pass
  }
  while (reduced_ < order_.size() && order_[order_.size() - 1 - reduced_]->is_complete()) {
    ShardUnit& complete = *order_[order_.size() - 1 - reduced_];
    announce('r', complete);
    reduce(complete, complete.take_gradients());
    ++reduced_;
  }
}

void ShardedParameters::reduce(ShardUnit& unit, std::vector<at::Tensor> gradients) {
  check_dense(unit, gradients);
  traffic_->reduce(unit, std::move(gradients));
  unit.release();
  in_use_ = in_use_ == &unit ? nullptr : in_use_;
}

void ShardedParameters::end_shard() {
  check<StateError>(!shards_.empty(), step_where, "expected ShardOptions::virtual_ranks for end_shard(), got 0");
  for (std::size_t at = 0; at < units_.size(); ++at) {
    std::vector<at::Tensor> gradients = units_[at]->take_gradients();
    check_dense(*units_[at], gradients);
    shards_[at]->push(std::move(gradients));
  }
}

bool ShardedParameters::has_missing_shards() const { return !shards_.empty() && shards_.front()->missing_shards() > 0; }

void ShardedParameters::finish_backward() {
  if (!shards_.empty()) {
    for (std::size_t at = units_.size(); at-- > 0;) {
      std::vector<at::Tensor> sums = shards_[at]->finish(/*any_lacking=*/false);
      sums.resize(units_[at]->parameters().size());  // for a rank without a shard
      if (traffic_ != nullptr) {
        reduce(*units_[at], std::move(sums));
        continue;
      }
      for (std::size_t index = 0; index < sums.size(); ++index) {
        const ShardedParameter& parameter = units_[at]->parameters()[index];
        parameter.rows.mutable_grad() =
            sums[index].defined() ? sums[index].to(parameter.rows.scalar_type()) : sums[index];
      }
    }
  } else if (sync_ && traffic_ != nullptr) {
    std::string pending;
    for (const auto& unit : units_) {
      pending += unit->has_gradients() ? '1' : '0';
    }
    pending = any_of_ranks(replicas_, any_of_ranks(group_, pending));
    for (std::size_t at = units_.size(); at-- > 0;) {
      if (pending[at] == '1') {
        reduce(*units_[at], units_[at]->take_gradients());
      }
    }
  }
  release_all();
  reduced_ = 0;
  if (traffic_ != nullptr) {
    traffic_->finish_reduces();
    if (sync_) {
      end_gathers();
      traffic_->end();
      is_stale_ = layout_.plain && !group_.alone();
    }
  }
}

void ShardedParameters::update_parameters() {
  is_stale_ = false;
  if (!layout_.plain || group_.alone()) {
    return;
  }
  traffic_->begin();
  for (std::size_t at = 0; at < units_.size(); ++at) {
    for (std::size_t next = at == 0 ? 0 : at + prefetch_; next <= std::min(at + prefetch_, units_.size() - 1); ++next) {
      traffic_->start_gather(*units_[next]);
    }
    traffic_->finish_gather(*units_[at]);
  }
  traffic_->end();
}

void ShardedParameters::zero_grad() {
  if (traffic_ != nullptr) {
    traffic_->finish_reduces();  // otherwise gradients in flight would be added to later ones
  }
  for (const auto& unit : units_) {
    unit->drop_gradients();
    for (ShardedParameter& parameter : unit->parameters()) {
      parameter.rows.mutable_grad().reset();
    }
  }
  for (const auto& shards : shards_) {
    shards->drop();
  }
}

// Sums the squares of each part of a parameter's rows, on the rank that has it, then all parts along a tree, then all
// parameters in order: the same bits for any number of ranks if the parts are the same.
at::Tensor ShardedParameters::squared_grad_norm() const {
  const at::NoGradGuard no_grad;
  const RowSplit& split = layout_.split;
  const Subtree own = split.parts_of(group_.rank());
  std::vector<at::Tensor> parts;
  at::Tensor zero;
  for (std::int64_t part = own.begin; part < own.end; ++part) {
    std::vector<at::Tensor> squares;
    for (const auto& unit : units_) {
      for (const ShardedParameter& parameter : unit->parameters()) {
        if (!zero.defined()) {
          zero = at::zeros({}, parameter.rows.options().dtype(at::kDouble).requires_grad(false));
        }
        const at::Tensor& gradient = parameter.rows.grad();
        const std::int64_t rows = rows_of(parameter.whole);
        const RowRange range = split.range(rows, Subtree{part, part + 1});
        if (!gradient.defined() || range.count == 0) {
          squares.push_back(zero);
          continue;
        }
        const RowRange mine = split.range(rows, group_.rank());
        at::Tensor values = take_rows(gradient.detach(), {range.begin - mine.begin, range.count});
        values = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
        squares.push_back(at::linalg_vector_norm(values.contiguous(), 2, {}, false, at::kDouble).square());
      }
    }
    parts.push_back(squares.empty() ? at::zeros({0}, at::TensorOptions().dtype(at::kDouble)) : at::stack(squares));
  }
  std::vector<at::Tensor> all;
  for (const at::Tensor& of_rank : group_.all_gather(at::stack(parts))) {
    for (const at::Tensor& part : of_rank.unbind(0)) {
      all.push_back(part);
    }
  }
  return sum_along(all, subtrees_of_ranks(split.parts()), 0, all.size()).sum();
}

void ShardedParameters::abort(std::string_view reason) {
  if (traffic_ != nullptr) {
    traffic_->abort(reason);
  }
}

// ---- outside of steps -----------------------------------------------------------------------------------------------

void ShardedParameters::enter_full_parameters() {
  check<StateError>(steps_ == 0 && !has_full_parameters_, step_where,
                    "expected dl::ShardedModel::FullParameters outside of steps, got ",
                    has_full_parameters_ ? "one inside of another" : "one inside of a step");
  has_full_parameters_ = true;
  is_stale_ = false;
  if (layout_.plain && group_.alone()) {
    return;
  }
  const at::NoGradGuard no_grad;
  traffic_->begin();
  for (const auto& unit : units_) {
    if (layout_.param_dtype == at::ScalarType::Undefined) {
      traffic_->gather_own(*unit);
    }
  }
  traffic_->end();
  for (const auto& unit : units_) {
    for (ShardedParameter& parameter : unit->parameters()) {
      parameter.module_tensor = parameter.whole;
      if (layout_.param_dtype != at::ScalarType::Undefined) {  // the whole tensor has rounded values
        const at::Tensor all = at::cat(group_.all_gather(parameter.rows.detach()));
        parameter.module_tensor = at::empty_like(parameter.whole, parameter.parameter.options().requires_grad(false));
        parameter.module_tensor.copy_(all.view(parameter.whole.sizes()));
      }
      if (!layout_.plain) {
        unmark_sharded(parameter.parameter, parameter.module_tensor);
      }
    }
  }
}

void ShardedParameters::leave_full_parameters(bool writes) {
  for (const auto& unit : units_) {
    if (writes && has_full_parameters_) {
      unit->store_rows();
    }
    for (ShardedParameter& parameter : unit->parameters()) {
      parameter.module_tensor.reset();
      if (!layout_.plain) {
        mark_sharded(parameter.parameter, shared_from_this(), unit, parameter.name, parameter.whole);
      } else if (!parameter.rows.is_same(parameter.parameter)) {
        remember_rows(parameter.parameter, unit);
      }
    }
    unit->release();
  }
  has_full_parameters_ = false;
}

}  // namespace danling::inline v0::detail
