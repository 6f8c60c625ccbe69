// Convolutions and pooling along sequences with elements (channels, length...), as torch::nn lays them out.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Placement of sequences in one long row of positions. Each has room for its padding, so that no window reads
/// positions of a neighbour.
struct Lanes {
  std::vector<std::int64_t> input_shift;   ///< per sequence: offset from a row of the values to its position
  std::vector<std::int64_t> output_shift;  ///< per sequence: offset from a row of the results to its position
  std::vector<std::int64_t> lengths;       ///< lengths of the results
  std::int64_t positions = 0;
};

Lanes make_lanes(Call& call, const NestedTensorImpl& impl, std::int64_t left, std::int64_t right, std::int64_t extent,
                 std::int64_t stride) {
  const Ragged& ragged = *impl.structure().ragged;
  Lanes out;
  std::int64_t output_rows = 0;
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    const std::int64_t padded = ragged.rows_of(element) + left + right;
    call.expect(padded >= extent, "expected sequences of at least ", extent - left - right,
                " positions without the padding, got elements ", text_of_shapes(impl));
    const std::int64_t length = (padded - extent) / stride + 1;
    out.input_shift.push_back(out.positions + left - ragged.begin(element));
    out.output_shift.push_back(out.positions / stride - output_rows);
    out.lengths.push_back(length);
    output_rows += length;
    out.positions += (padded + stride - 1) / stride * stride;  // the next sequence begins where a window begins
  }
  return out;
}

/// Returns the position of each row without waiting for the device: only one number per sequence is copied.
at::Tensor positions_of(const Ragged& ragged, const std::vector<std::int64_t>& shift, const at::Tensor& elements) {
  const at::Device device = elements.device();
  return at::arange(ragged.rows(), elements.options()) +
         at::tensor(shift, at::kLong).to(device, at::kLong, /*non_blocking=*/true).index_select(0, elements);
}

void call_conv1d(Call& call) {
  at::Tensor input = call.tensor("input");
  const at::Tensor weight = call.tensor("weight");
  call.expect(nested(input) != nullptr && nested(weight) == nullptr,
              "expected a NestedTensor as input and a plain weight");
  call.expect(nested(input)->element_rank() == 2, "expected elements (channels, length), got ",
              text_of_shapes(*nested(input)));
  const std::int64_t channels = weight.size(1) * call.integer("groups");
  const Structure& given = nested(input)->structure();
  call.expect(!given.is_ragged(0) || given.ragged->longest()[0] == channels || given.batch() == 0,
              "expected elements (channels, length) of ", channels, " channels, got ", text_of_shapes(*nested(input)),
              "; transpose(1, 2) exchanges channels and length");
  input = with_ragged_dims(call, input, {1});
  const NestedTensorImpl& impl = *nested(input);
  const at::Tensor values = values_of(input);
  const std::int64_t groups = call.integer("groups"), stride = call.integers("stride")->front(),
                     dilation = call.integers("dilation")->front();
  call.expect(values.size(1) == channels, "expected elements of ", channels, " channels, got ", text_of_shapes(impl));
  const std::int64_t extent = dilation * (weight.size(2) - 1) + 1;
  std::int64_t left = 0, right = 0;
  if (call["padding"].isString()) {
    const bool same_length = call["padding"].toStringRef() == "same";
    call.expect(same_length || call["padding"].toStringRef() == "valid", "expected padding 'same' or 'valid', got '",
                call["padding"].toStringRef(), "'");
    call.expect(!same_length || stride == 1, "expected a stride of 1 with padding 'same', got ", stride);
    left = same_length ? (extent - 1) / 2 : 0;
    right = same_length ? extent - 1 - left : 0;
  } else {
    left = right = call.integers("padding")->front();
  }
  call.expect(stride > 0 && dilation > 0 && left >= 0 && right >= 0,
              "expected a stride and a dilation above 0 and a padding of at least 0, got ", stride, ", ", dilation,
              " and ", std::min(left, right));
  Structure structure = impl.structure();
  const Lanes lanes = make_lanes(call, impl, left, right, extent, stride);
  structure.ragged = std::make_shared<Ragged>(structure.batch(), 1, lanes.lengths);
  const at::Tensor from =
      positions_of(*impl.structure().ragged, lanes.input_shift, impl.structure().ragged->elements_on(values.device()));
  // An empty batch still needs room for one window.
  const at::Tensor spread =
      at::zeros({std::max(lanes.positions, extent), values.size(1)}, values.options()).index_copy(0, from, values);
  const std::optional<at::Tensor> bias =
      call["bias"].isTensor() ? std::optional(call["bias"].toTensor()) : std::optional<at::Tensor>();
  const std::int64_t none = 0;
  const at::Tensor all = at::conv1d(spread.t().unsqueeze(0), weight, bias, at::IntArrayRef(stride),
                                    at::IntArrayRef(none), at::IntArrayRef(dilation), groups);
  const at::Tensor to =
      positions_of(*structure.ragged, lanes.output_shift, structure.ragged->elements_on(values.device()));
  call.finish(wrap(all.squeeze(0).t().index_select(0, to), std::move(structure)));
}

/// Marks the spatial dimensions of the results as ragged, even in a batch of equal sizes, where the channels would be
/// guessed.
void call_spatial(Call& call) {
  const at::Tensor first = call.first_nested();
  const NestedTensorImpl& impl = *nested(first);
  call.expect(impl.element_rank() >= 2, "expected elements (channels, length...), got ", text_of_shapes(impl));
  if (impl.structure().ragged_dims == c10::DimVector{0}) {
    c10::DimVector positions;
    for (std::int64_t dim = 1; dim < impl.element_rank(); ++dim) {
      positions.push_back(dim);
    }
    call[0] = with_ragged_dims(call, first, positions);
  }
  call_per_element(call);
}

/// upsample_*: one call per element; a scale factor yields a different size for each element.
void call_upsample(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  std::vector<double> scales;
  std::size_t size_at = 0;
  for (std::size_t at = 0; at < call.size(); ++at) {
    const std::string& name = call.schema().arguments()[at].name();
    if (name.starts_with("scales") && call[at].isDouble()) {
      scales.push_back(call[at].toDouble());
    }
    size_at = name == "output_size" ? at : size_at;
  }
  PerElement results = run_per_element(call, [&](std::vector<c10::IValue>& arguments) {
    const at::Tensor element = arguments[0].toTensor();
    arguments[0] = element.unsqueeze(0);
    if (scales.size() + 1 == static_cast<std::size_t>(element.dim())) {
      std::vector<std::int64_t> sizes;
      for (std::size_t dim = 0; dim < scales.size(); ++dim) {
        const auto size = static_cast<double>(element.size(static_cast<std::int64_t>(dim) + 1));
        sizes.push_back(static_cast<std::int64_t>(std::floor(size * scales[dim])));
      }
      arguments[size_at] = sizes;
    }
  });
  for (at::Tensor& result : results.results[0]) {
    result = result.squeeze(0);
  }
  call.finish(nest_results(results, 0, impl));
}

/// Shuffles the channels at dimension 1, position by position.
void call_channel_shuffle(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  call.expect(structure.batch_first && impl.element_rank() >= 2 && !structure.is_ragged(0),
              "expected elements (channels, length...) with the batch in front, got ", text_of_shapes(impl));
  call["self"] = values_of(self).unsqueeze(-1);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor().squeeze(-1), structure);
}

}  // namespace

void add_convolution(OperatorTable& table) {
  table.add(Way::offsets, call_conv1d, {"conv1d"});
  table.add(Way::fallback, call_spatial,
            {"conv2d",
             "conv3d",
             "conv_transpose1d",
             "conv_transpose2d",
             "conv_transpose3d",
             "max_pool1d",
             "max_pool1d_with_indices",
             "max_pool2d",
             "max_pool2d_with_indices",
             "max_pool3d",
             "max_pool3d_with_indices",
             "avg_pool1d",
             "avg_pool2d",
             "avg_pool3d",
             "adaptive_avg_pool1d",
             "adaptive_avg_pool2d",
             "adaptive_avg_pool3d",
             "adaptive_max_pool1d",
             "adaptive_max_pool2d",
             "adaptive_max_pool3d",
             "reflection_pad1d",
             "reflection_pad2d",
             "replication_pad1d",
             "replication_pad2d",
             "replication_pad3d",
             "_pad_circular",
             "pixel_shuffle",
             "pixel_unshuffle"});
  table.add(Way::packed, call_channel_shuffle, {"channel_shuffle"});
  table.add(Way::fallback, call_upsample,
            {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
             "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
             "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"});
}

}  // namespace danling::inline v0::detail
