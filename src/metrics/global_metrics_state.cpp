// The state of GlobalMetrics.
#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/kept.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* load_metrics_where = "global_metrics.load_state_dict";

// A tensor, or for several parts a list with null for parts without data.
State parts_state(const detail::PartSums& parts) {
  if (parts.size() == 1 && parts.front().defined()) {
    return parts.front().clone();
  }
  State::List list;
  for (const at::Tensor& part : parts) {
    State& of_part = list.emplace_back();
    if (part.defined()) {
      of_part = part.clone();
    }
  }
  return list;
}

// Sums of at least `num_parts` parts, unless they are exact.
State::Map sums_state(const std::vector<RunningSumsPtr>& keys, const std::vector<detail::PartSums>& sums,
                      std::int64_t num_parts) {
  State::Map out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    detail::PartSums parts = sums[i];
    const at::Tensor any = detail::first_defined(parts);
    if (any.defined() && !detail::is_exact(*keys[i], any.scalar_type())) {
      parts.resize(std::max(parts.size(), static_cast<std::size_t>(num_parts)));
    }
    if (!parts.empty()) {
      out.set(keys[i]->key, parts_state(parts));
    }
  }
  return out;
}

// Returns whether it is strided, as all stored tensors are.
bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_quantized();
}

// Required dtype and shape of sums: the declared ones, else those of existing sums.
std::optional<RunningSums::Form> form_of_sums(const RunningSums& which, const at::Tensor& present) {
  if (which.form || !present.defined()) {
    return which.form;
  }
  return RunningSums::Form{present.scalar_type(), present.sizes().vec()};
}

at::Tensor read_part(const RunningSums& which, const State& state, const at::Tensor& present) {
  check<StateError>(state.is_tensor() && is_plain(state.tensor()), load_metrics_where, "expected the sums ",
                    quote(which.key), " as a dense tensor, got ", state.is_tensor() ? "another one" : state.kind());
  at::Tensor sums = state.tensor();
  const auto form = form_of_sums(which, present);
  if (form && which.upgrade && sums.sizes() != form->shape) {
    const at::Tensor upgraded = which.upgrade(sums);
    sums = upgraded.defined() ? upgraded : sums;
  }
  if (form && (sums.scalar_type() != form->dtype || sums.sizes() != form->shape)) {
    fail<StateError>(load_metrics_where, "expected the sums ", quote(which.key), " as ", c10::toString(form->dtype),
                     " ", detail::shape_text(form->shape), ", got ", detail::tensor_text(sums));
  }
  return detail::copy_outside_inference_mode(sums);
}

// `present`: sums with the same dtype and shape, if any.
detail::PartSums read_sums(const RunningSums& which, const State::Map& state, bool expected, at::Tensor present) {
  const State* found = state.find(which.key);
  check<StateError>((found != nullptr) == expected, load_metrics_where, "expected ", expected ? "" : "no ", "sums ",
                    quote(which.key), expected ? ", got none" : " without a batch, got some");
  detail::PartSums parts;
  if (found == nullptr) {
    return parts;
  }
  if (!found->is_list()) {
    parts.push_back(read_part(which, *found, present));
    return parts;
  }
  for (const State& part : found->list()) {
    // Null: a part without data.
    parts.push_back(part.is_null() ? at::Tensor() : read_part(which, part, present));
    present = present.defined() ? present : parts.back();
  }
  return parts;
}

// By key; `present` has sums with the same dtype and shape, if any.
std::vector<detail::PartSums> read_all_sums(const std::vector<RunningSumsPtr>& keys, const State::Map& state,
                                            bool expected, const std::vector<detail::PartSums>& present) {
  std::vector<detail::PartSums> out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out.push_back(read_sums(*keys[i], state, expected, detail::first_defined(present[i])));
  }
  check<StateError>(state.size() == (expected ? keys.size() : 0), load_metrics_where, "expected ", keys.size(),
                    " sums, got ", state.size(), "; were they saved by other metrics?");
  return out;
}

// The state of another container has other keys, or values of other types.
void check_parts(const State& state) {
  check<StateError>(state.is_map(), load_metrics_where, "expected a map, got ", state.kind());
  constexpr const char* expected = "expected n, count, sums and last_sums, got a state ";
  for (const std::string_view key : {"n", "count", "last", "batch_index"}) {
    const State* part = state.find(key);
    check<StateError>(part != nullptr || key == "last" || key == "batch_index", load_metrics_where, expected,
                      "without ", quote(key));
    check<StateError>(part == nullptr || part->is_integer(), load_metrics_where, "expected an integer ", quote(key),
                      ", got ", part == nullptr ? "" : part->kind());
  }
  for (const char* key : {"sums", "last_sums"}) {
    const State* part = state.find(key);
    check<StateError>(part != nullptr, load_metrics_where, expected, "without ", quote(key));
    check<StateError>(part->is_map(), load_metrics_where, "expected a map ", quote(key), ", got ", part->kind());
  }
  for (const char* key : {"preds", "targets", "batches"}) {
    const State* part = state.find(key);
    check<StateError>(part == nullptr || part->is_tensor(), load_metrics_where, "expected a tensor ", quote(key),
                      ", got ", part == nullptr ? "" : part->kind());
  }
}

// Runs each metric on empty rows of this dtype and shape, on the host: the library's metrics throw for shapes that they
// cannot read.
void check_readable(const std::vector<MetricFunc>& metrics, const std::vector<RunningSumsPtr>& sums,
                    const at::Tensor& preds, const at::Tensor& targets) {
  const auto none_like = [](const at::Tensor& rows) {
    std::vector<std::int64_t> sizes = rows.sizes().vec();
    sizes[0] = 0;
    return at::zeros(sizes, rows.scalar_type());
  };
  const MetricState nothing(none_like(preds), none_like(targets));
  try {
    for (const RunningSumsPtr& which : sums) {
      if (which->form) {
        nothing.sums(which);
      }
    }
    for (const MetricFunc& metric : metrics) {
      if (metric.preds_targets) {
        metric.compute(nothing);
      }
    }
  } catch (const MetricError& error) {
    fail<StateError>(load_metrics_where, "expected predictions and targets that the metrics can read, got ",
                     detail::tensor_text(preds), " and ", detail::tensor_text(targets), ": ", error.what());
  } catch (const std::exception&) {
    // A user's metric that throws for empty data proves nothing.
  }
}

}  // namespace

State GlobalMetrics::state_dict() const { return impl_->state_of(impl_->local); }

State GlobalMetrics::Impl::state_of(Local& data) const {
  State::Map state{{"n", data.n.read()}, {"count", data.count.read()}};
  if (keeps) {
    state.set("last", data.last_rows);
    if (const at::Tensor preds = data.preds.all(); preds.defined()) {
      state.set("preds", preds);
      state.set("targets", data.targets.all());
      state.set("batches", data.batches.tensor());
    }
  }
  if (data.last_index >= 0) {
    state.set("batch_index", data.last_index);
  }
  state.set("sums", sums_state(sums, data.totals, data.num_parts));
  state.set("last_sums", sums_state(sums, data.last, data.num_parts));
  return state;
}

void GlobalMetrics::load_state_dict(const State& state) { impl_->replace(impl_->read(state)); }

GlobalMetrics::Impl::Local GlobalMetrics::Impl::read(const State& state) const {
  const c10::NoGradGuard no_grad;
  check_parts(state);
  Local loaded;
  if (const State* index = state.find("batch_index")) {
    loaded.last_index = index->integer();
    check<StateError>(loaded.last_index >= 0, load_metrics_where, "expected a batch_index of at least 0, got ",
                      loaded.last_index);
  }
  loaded.n.host = state.at("n").integer();
  loaded.count.host = state.at("count").integer();
  check<StateError>(loaded.n.host >= 0 && loaded.count.host >= loaded.n.host, load_metrics_where,
                    "expected counts that are not negative and n within count, got n ", loaded.n.host, " and count ",
                    loaded.count.host);
  const State* preds = state.find("preds");
  const State* targets = state.find("targets");
  check<StateError>((state.find("last") != nullptr) == keeps, load_metrics_where, "expected the state of metrics that ",
                    keeps ? "store" : "do not store", " predictions, got that of metrics that ",
                    keeps ? "do not" : "do");
  check<StateError>((preds != nullptr) == (targets != nullptr) && (preds == nullptr || keeps), load_metrics_where,
                    "expected predictions and targets, got one of them");
  if (preds != nullptr) {
    const at::Tensor& rows = preds->tensor();
    const at::Tensor& labels = targets->tensor();
    check<StateError>(is_plain(rows) && is_plain(labels), load_metrics_where,
                      "expected dense predictions and targets, got sparse or nested ones");
    loaded.last_rows = state.at("last").integer();
    check<StateError>(rows.dim() > 0 && labels.dim() > 0 && rows.size(0) == labels.size(0) && loaded.last_rows >= 0 &&
                          loaded.last_rows <= rows.size(0),
                      load_metrics_where, "expected as many predictions as targets, and no fewer than the last ",
                      loaded.last_rows, ", got ", detail::tensor_text(rows), " and ", detail::tensor_text(labels));
    check_readable(metrics, sums, rows, labels);
    loaded.preds.append(rows, options.device);
    loaded.targets.append(labels, options.device);
    // Absent in older states.
    const State* batches = state.find("batches");
    if (batches == nullptr) {
      loaded.batches.add(-1, rows.size(0));
    }
    check<StateError>(
        batches == nullptr || (loaded.batches.read(batches->tensor()) && !loaded.batches.empty() &&
                               loaded.batches.rows() == rows.size(0) && loaded.batches.last() == loaded.last_index),
        load_metrics_where, "expected batches that cover the ", rows.size(0), " predictions and end with number ",
        loaded.last_index, ", got others");
  }
  const State::Map& totals = state.at("sums").map();
  const bool any = keeps ? preds != nullptr : totals.size() > 0;
  loaded.totals = read_all_sums(sums, totals, any, local.totals);
  loaded.last = read_all_sums(sums, state.at("last_sums").map(), any, loaded.totals);
  for (const detail::PartSums& parts : loaded.totals) {
    loaded.num_parts = std::max(loaded.num_parts, static_cast<std::int64_t>(parts.size()));
  }
  return loaded;
}

State GlobalMetrics::merge_states(std::span<const State> states) const {
  constexpr const char* where = "global_metrics.merge_states";
  const c10::NoGradGuard no_grad;
  std::vector<Impl::Local> ranks;
  std::vector<detail::BatchRows> batches;
  std::int64_t last_index = -1;
  for (const State& state : states) {
    const Impl::Local& rank = ranks.emplace_back(impl_->read(state));
    batches.push_back(rank.batches);
    last_index = std::max(last_index, rank.last_index);
    check<StateError>(states.size() == 1 || rank.batches.empty() || rank.batches.last() >= 0, where,
                      "expected states with batch numbers, got one of an older version");
  }
  Impl::Local merged;
  merged.totals.resize(impl_->sums.size());
  merged.last.resize(impl_->sums.size());
  merged.last_index = last_index;
  for (Impl::Local& rank : ranks) {
    const bool in_last = rank.last_index == last_index;
    merged.count.host += rank.count.host;
    merged.n.host += in_last ? rank.n.host : 0;
    merged.last_rows += in_last ? rank.last_rows : 0;
    for (std::size_t i = 0; i < impl_->sums.size(); ++i) {
      detail::join_parts(*impl_->sums[i], merged.totals[i], rank.totals[i]);
      if (in_last) {
        detail::join_parts(*impl_->sums[i], merged.last[i], rank.last[i]);
      }
    }
  }
  for (const detail::RowPiece& piece : detail::in_order(batches)) {
    Impl::Local& rank = ranks[piece.source];
    const std::int64_t end = piece.begin + piece.rows;
    for (const bool preds : {true, false}) {
      detail::RowStore& to = preds ? merged.preds : merged.targets;
      const at::Tensor rows = (preds ? rank.preds : rank.targets).slice(piece.begin, end);
      check<StateError>(to.fits(rows), where, "expected ", preds ? "predictions" : "targets", " of one form, ",
                        to.like().defined() ? to.description() : "", ", got ", detail::tensor_text(rows));
      to.append(rows, impl_->options.device);
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    // Batches without rows count too, as do dtypes and shapes of rows.
    merged.batches = rank == 0 ? batches[0] : detail::joined(merged.batches, batches[rank]);
    if (!merged.preds.like().defined() && ranks[rank].preds.like().defined()) {
      merged.preds.append(ranks[rank].preds.like(), impl_->options.device);
      merged.targets.append(ranks[rank].targets.like(), impl_->options.device);
    }
  }
  return impl_->state_of(merged);
}

std::optional<State> GlobalMetrics::share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const {
  check<StateError>(0 <= begin && begin <= end, "global_metrics.share_of_state",
                    "expected parts from one to a later one, got ", begin, " to ", end);
  const c10::NoGradGuard no_grad;
  Impl::Local share = impl_->read(merged);
  if (begin > 0) {
    Impl::Local other;
    other.last_index = share.last_index;
    other.totals = std::move(share.totals);
    other.last = std::move(share.last);
    if (share.preds.like().defined()) {
      other.preds.append(share.preds.like(), impl_->options.device);
      other.targets.append(share.targets.like(), impl_->options.device);
      other.batches.add(share.last_index, 0);
    }
    share = std::move(other);
  }
  share.num_parts = std::max<std::int64_t>(end - begin, 1);
  bool any = begin == 0;
  for (std::vector<detail::PartSums>* by_key : {&share.totals, &share.last}) {
    for (std::size_t i = 0; i < impl_->sums.size(); ++i) {
      any = detail::keep_parts(*impl_->sums[i], (*by_key)[i], begin, end) || any;
    }
  }
  return any ? std::optional<State>(impl_->state_of(share)) : std::nullopt;
}

}  // namespace danling::inline v0
