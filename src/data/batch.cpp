#include <danling/data/batch.hpp>

#include <vector>

#include <danling/core/error.hpp>
#include <danling/data/tensors.hpp>

namespace danling::inline v0::data {

namespace {

void list_names(const State& value, const std::string& prefix, std::vector<std::string>& out) {
  if (value.is_tensor()) {
    out.push_back(prefix);
  } else if (value.is_map()) {
    for (const auto& [key, item] : value.map()) {
      const std::string name = key.is_string() ? key.string() : std::to_string(key.integer());
      list_names(item, prefix.empty() ? name : prefix + "." + name, out);
    }
  }
}

}  // namespace

bool Batch::extra_is_on(c10::Device device) const {
  bool all = true;
  each_tensor(extra, [&](const at::Tensor& tensor) { all = all && on(tensor, device); });
  return all;
}

void Batch::move_to(c10::Device device, bool non_blocking) {
  input = tensor_to(std::move(input), device, non_blocking);
  target = tensor_to(std::move(target), device, non_blocking);
  extra = map_tensors(std::move(extra),
                      [&](at::Tensor tensor) { return tensor_to(std::move(tensor), device, non_blocking); });
}

Batch Batch::pin_memory() && {
  return {pinned(input), pinned(target), map_tensors(extra, pinned), loss_normalizer, num_tokens, std::move(info)};
}

const at::Tensor& Batch::at(std::string_view name) const {
  if (name == "input") {
    return input;
  }
  if (name == "target") {
    return target;
  }
  const State* found = &extra;
  for (std::string_view rest = name; found != nullptr;) {
    const std::size_t dot = rest.find('.');
    found = found->is_map() ? found->find(rest.substr(0, dot)) : nullptr;
    if (dot == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(dot + 1);
  }
  if (found == nullptr || !found->is_tensor()) {
    std::vector<std::string> known = {"input", "target"};
    list_names(extra, "", known);
    fail<DataError>("data.batch", "expected one of ", join(known), ", got ", quote(name));
  }
  return found->tensor();
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
  State* place = &extra;
  for (std::string_view rest = name;;) {
    const std::size_t dot = rest.find('.');
    check<DataError>(place->is_null() || place->is_map(), "data.batch", "expected maps on the path of a name, got ",
                     quote(name), ", where ", place->kind(), " is on the path");
    place = &(*place)[rest.substr(0, dot)];
    if (dot == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(dot + 1);
  }
  *place = std::move(tensor);
}

std::int64_t Batch::size_without_input() const {
  check<DataError>(!input.defined(), "data.batch",
                   "expected an input with a first dimension that counts samples, got a scalar");
  std::optional<std::int64_t> found;
  const auto look = [&](const at::Tensor& tensor) {
    if (!found && tensor.defined() && tensor.dim() > 0) {
      found = tensor.size(0);
    }
  };
  each_tensor(extra, look);
  look(target);
  check<DataError>(found.has_value(), "data.batch",
                   "expected an input, or another tensor with a first dimension that counts samples, got none");
  return *found;
}

}  // namespace danling::inline v0::data
