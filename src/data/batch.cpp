#include <danling/data/batch.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

void Batch::move_to(c10::Device device, bool non_blocking) {
  // To the host a copy that does not wait would be read before it is there.
  const bool overlap = non_blocking && !device.is_cpu();
  const auto move = [&](at::Tensor& tensor) {
    if (!on(tensor, device)) {
      tensor = tensor.to(device, overlap);
    }
  };
  move(input);
  move(target);
  for (auto& item : extra) {
    move(item.tensor);
  }
}

Batch Batch::pin_memory() const {
  const auto pinned = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.pin_memory() : tensor; };
  Batch out{pinned(input), pinned(target), extra, loss_normalizer};
  for (auto& item : out.extra) {
    item.tensor = pinned(item.tensor);
  }
  return out;
}

const at::Tensor& Batch::at(std::string_view name) const {
  if (name == "input") {
    return input;
  }
  if (name == "target") {
    return target;
  }
  std::string known = "input, target";
  for (const auto& item : extra) {
    if (item.name == name) {
      return item.tensor;
    }
    known += ", " + item.name;
  }
  fail<DataError>("data.batch", "expected one of ", known, ", got ", quote(name));
}

void Batch::set(std::string_view name, at::Tensor tensor) {
  if (name == "input") {
    input = std::move(tensor);
    return;
  }
  if (name == "target") {
    target = std::move(tensor);
    return;
  }
  for (auto& item : extra) {
    if (item.name == name) {
      item.tensor = std::move(tensor);
      return;
    }
  }
  extra.push_back({std::string(name), std::move(tensor)});
}

void Batch::fail_size() const {
  fail<DataError>("data.batch", "expected an input with a first dimension that counts samples, got ",
                  input.defined() ? "a scalar" : "none");
}

}  // namespace danling::inline v0::data
