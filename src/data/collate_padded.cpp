#include <danling/data/collate_padded.hpp>

#include <algorithm>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/collate.hpp>
#include <danling/tensors/detail/loss_targets.hpp>

namespace danling::inline v0::data {

namespace {

// Floating dtypes round a value; others must hold it: true would be a label.
bool holds(at::ScalarType dtype, double value) {
  const at::Tensor exact = at::scalar_tensor(value, at::kDouble);
  return at::isFloatingType(dtype) || at::isComplexType(dtype) || exact.to(dtype).to(at::kDouble).equal(exact);
}

at::Tensor pad_all(const std::vector<Sample>& samples, at::Tensor Sample::* member, const char* name,
                   std::int64_t longest, double value) {
  const at::Tensor& first = samples.front().*member;
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes.front() = longest;
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(samples.size()));
  check<DataError>(holds(first.scalar_type(), value), "data.collate", "expected a padding value that ",
                   c10::toString(first.scalar_type()), " can hold, got ", value, " for the ", name, "; set ",
                   name == std::string_view("input") ? "value" : "target_value", " of PaddingOptions");
  at::Tensor out = at::full(sizes, value, first.options());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& own = samples[i].*member;
    const bool fits = own.defined() && own.dim() == first.dim() && own.scalar_type() == first.scalar_type() &&
                      own.device() == first.device() && own.sizes().slice(1) == first.sizes().slice(1);
    if (!fits) {
      detail::fail_collate(name, i, concat("of ", detail::describe(first), ", but for the length,"),
                           detail::describe(own));
    }
    out.select(0, static_cast<std::int64_t>(i)).narrow(0, 0, own.size(0)).copy_(own);
  }
  return out;
}

// True if every target is as long as its input.
bool targets_are_sequences(const std::vector<Sample>& samples) {
  return std::all_of(samples.begin(), samples.end(), [](const Sample& sample) {
    return sample.target.defined() && sample.target.dim() > 0 && sample.target.size(0) == sample.input.size(0);
  });
}

}  // namespace

Batch collate_padded(std::vector<Sample> samples, const PaddingOptions& options) {
  check<DataError>(!samples.empty(), "data.collate", "expected at least one sample, got none");
  check<ConfigError>(options.multiple_of > 0, "data.collate", "expected multiple_of of at least 1, got ",
                     options.multiple_of);
  std::vector<std::int64_t> lengths;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& input = samples[i].input;
    if (!input.defined() || input.dim() == 0) {
      detail::fail_collate("input", i, "a tensor of shape [L, ...]", detail::describe(input));
    }
    lengths.push_back(input.size(0));
    total += input.size(0);
    const State& extra = samples[i].extra;
    for (const char* name : {"lengths", "mask"}) {
      if (extra.is_map() && extra.map().contains(name)) {
        detail::fail_collate("extra", i, concat("no ", quote(name), ", which padding adds,"), "one");
      }
    }
  }
  const std::int64_t unit = options.multiple_of;
  const std::int64_t longest = (*std::max_element(lengths.begin(), lengths.end()) + unit - 1) / unit * unit;

  Batch batch;
  batch.num_tokens = total;
  batch.input = pad_all(samples, &Sample::input, "input", longest, options.value);
  const bool sequences = targets_are_sequences(samples);
  if (sequences) {
    batch.target = pad_all(samples, &Sample::target, "target", longest, options.target_value);
    // Targets that samples have set to the padding value do not count either.
    batch.loss_normalizer =
        at::isIntegralType(batch.target.scalar_type(), /*includeBool=*/false)
            ? danling::detail::count_targets(batch.target, static_cast<std::int64_t>(options.target_value))
            : total;
  }
  detail::Parts<at::Tensor> targets;
  detail::Parts<State> extras;
  for (const Sample& sample : samples) {
    targets.push_back(&sample.target);
    extras.push_back(&sample.extra);
  }
  if (!sequences) {
    batch.target = detail::collate_parts(targets, "target");
  }
  batch.extra = detail::collate_parts(extras, "extra");
  // The lengths are on the host, so this does not wait for the device.
  const at::Tensor host_lengths = at::tensor(lengths, at::kLong);
  const at::Tensor mask = at::arange(longest, at::kLong).unsqueeze(0).lt(host_lengths.unsqueeze(1));
  batch.set("lengths", tensor_to(host_lengths, batch.input.device()));
  batch.set("mask", tensor_to(mask, batch.input.device()));
  return batch;
}

}  // namespace danling::inline v0::data
