// Recurrent layers: one call of LibTorch's kernels for packed sequences.
#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/tensor.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Row order of these kernels: by step, and within a step the longest sequence first.
struct StepOrder {
  std::vector<std::int64_t> sequences;    ///< longest first
  std::vector<std::int64_t> batch_sizes;  ///< sequences active in each step
  std::vector<std::int64_t> rows;         ///< rows of the values in this order
  std::vector<std::int64_t> back;         ///< the inverse permutation
  std::int64_t not_empty = 0;
};

StepOrder order_by_step(const Ragged& ragged) {
  StepOrder out;
  out.sequences.resize(static_cast<std::size_t>(ragged.batch()));
  std::iota(out.sequences.begin(), out.sequences.end(), 0);
  std::stable_sort(out.sequences.begin(), out.sequences.end(),
                   [&](std::int64_t a, std::int64_t b) { return ragged.rows_of(a) > ragged.rows_of(b); });
  out.back.resize(static_cast<std::size_t>(ragged.rows()));
  for (std::int64_t step = 0; step < ragged.longest().front(); ++step) {
    std::int64_t alive = 0;
    for (const std::int64_t sequence : out.sequences) {
      if (ragged.rows_of(sequence) <= step) {
        break;
      }
      const std::int64_t row = ragged.begin(sequence) + step;
      out.back[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(out.rows.size());
      out.rows.push_back(row);
      ++alive;
    }
    out.batch_sizes.push_back(alive);
  }
  out.not_empty = out.batch_sizes.empty() ? 0 : out.batch_sizes.front();
  return out;
}

using States = std::vector<at::Tensor>;
/// Returns the outputs, then the states.
using Layer = States (*)(Call&, const at::Tensor& data, const at::Tensor& batch_sizes, const States& states);

States run_lstm(Call& call, const at::Tensor& data, const at::Tensor& batch_sizes, const States& states) {
  auto [out, hidden, cell] = at::lstm(data, batch_sizes, states, call.tensors("params"), call.boolean("has_biases"),
                                      call.integer("num_layers"), call["dropout"].toDouble(), call.boolean("train"),
                                      call.boolean("bidirectional"));
  return {out, hidden, cell};
}

template <auto function>
States run_simple(Call& call, const at::Tensor& data, const at::Tensor& batch_sizes, const States& states) {
  auto [out, hidden] = function(data, batch_sizes, states.front(), call.tensors("params"), call.boolean("has_biases"),
                                call.integer("num_layers"), call["dropout"].toDouble(), call.boolean("train"),
                                call.boolean("bidirectional"));
  return {out, hidden};
}

std::tuple<at::Tensor, at::Tensor> run_gru(const at::Tensor& data, const at::Tensor& sizes, const at::Tensor& state,
                                           at::TensorList params, bool biases, std::int64_t layers, double dropout,
                                           bool train, bool bidirectional) {
  return at::gru(data, sizes, state, params, biases, layers, dropout, train, bidirectional);
}
std::tuple<at::Tensor, at::Tensor> run_rnn_tanh(const at::Tensor& data, const at::Tensor& sizes,
                                                const at::Tensor& state, at::TensorList params, bool biases,
                                                std::int64_t layers, double dropout, bool train, bool bidirectional) {
  return at::rnn_tanh(data, sizes, state, params, biases, layers, dropout, train, bidirectional);
}
std::tuple<at::Tensor, at::Tensor> run_rnn_relu(const at::Tensor& data, const at::Tensor& sizes,
                                                const at::Tensor& state, at::TensorList params, bool biases,
                                                std::int64_t layers, double dropout, bool train, bool bidirectional) {
  return at::rnn_relu(data, sizes, state, params, biases, layers, dropout, train, bidirectional);
}

template <Layer layer>
void call_recurrent(Call& call) {
  at::Tensor input = call.tensor("input");
  call.expect(nested(input) != nullptr && nested(input)->element_rank() == 2,
              "expected a NestedTensor of elements (length, features) as input");
  input = with_ragged_dims(call, input, {0});
  const NestedTensorImpl& impl = *nested(input);
  const Structure& structure = impl.structure();
  call.expect(call.boolean("batch_first") == structure.batch_first,
              "expected a layer with batch_first=", structure.batch_first, ", as in the NestedTensor, got the other");
  const StepOrder order = order_by_step(*structure.ragged);
  call.expect(order.not_empty > 0, "expected a sequence that is not empty, got elements ", text_of_shapes(impl));
  const at::Tensor values = values_of(input);
  const auto index = [&](const std::vector<std::int64_t>& from) {
    return at::tensor(from, at::kLong).to(values.device(), at::kLong, /*non_blocking=*/true);
  };
  const at::Tensor sequences = index(order.sequences);
  States initial = call["hx"].isTensorList() ? call.tensors("hx") : States{call.tensor("hx")}, states;
  for (at::Tensor& state : initial) {
    call.expect(nested(state) == nullptr && state.dim() == 3 && state.size(1) == structure.batch(),
                "expected initial states (layers, ", structure.batch(), ", features), got (", join(state.sizes()), ")");
    state = state.index_select(1, sequences);
    states.push_back(state.narrow(1, 0, order.not_empty));
  }
  States results =
      layer(call, values.index_select(0, index(order.rows)), at::tensor(order.batch_sizes, at::kLong), states);
  std::vector<std::int64_t> places(order.sequences.size());
  for (std::size_t at = 0; at < places.size(); ++at) {
    places[static_cast<std::size_t>(order.sequences[at])] = static_cast<std::int64_t>(at);
  }
  const at::Tensor unsorted = index(places);
  std::vector<c10::IValue> out = {wrap(results[0].index_select(0, index(order.back)), structure)};
  for (std::size_t at = 1; at < results.size(); ++at) {
    at::Tensor state = results[at];
    if (order.not_empty < structure.batch()) {  // an empty sequence keeps its initial state
      state = at::cat({state, initial[at - 1].narrow(1, order.not_empty, structure.batch() - order.not_empty)}, 1);
    }
    out.emplace_back(state.index_select(1, unsorted));
  }
  call.finish(std::move(out));
}

/// One step of a cell for every token, each with a state.
void call_cell(Call& call) {
  const at::Tensor input = call.tensor("input");
  const NestedTensorImpl* impl = nested(input);
  call.expect(impl != nullptr && impl->values().dim() == 2 && !impl->structure().is_ragged(impl->element_rank() - 1),
              "expected a NestedTensor of elements (length, features) as input: a step of each token");
  const auto state_of = [&](const at::Tensor& state) {
    call.expect(nested(state) != nullptr && nested(state)->structure().matches(impl->structure()),
                "expected states of the input's lengths ", text_of_shapes(*impl), ", nested, got shape (",
                join(state.sizes()), "); gru, lstm and rnn run along each sequence");
    return values_of(state);
  };
  if (call["hx"].isTensorList()) {
    States states;
    for (const at::Tensor& state : call.tensors("hx")) {
      states.push_back(state_of(state));
    }
    call["hx"] = states;
  } else {
    call["hx"] = state_of(call.tensor("hx"));
  }
  const Structure structure = impl->structure();
  call["input"] = values_of(input);
  call.run();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    call.result(at) = wrap(call.result(at).toTensor(), structure);
  }
}

}  // namespace

void add_recurrent(OperatorTable& table) {
  table.add(Way::offsets, call_recurrent<run_lstm>, {"lstm.input"});
  table.add(Way::offsets, call_recurrent<run_simple<run_gru>>, {"gru.input"});
  table.add(Way::offsets, call_recurrent<run_simple<run_rnn_tanh>>, {"rnn_tanh.input"});
  table.add(Way::offsets, call_recurrent<run_simple<run_rnn_relu>>, {"rnn_relu.input"});
  table.add(Way::packed, call_cell, {"gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"});
}

}  // namespace danling::inline v0::detail
