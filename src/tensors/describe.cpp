#include <danling/tensors/detail/describe.hpp>

#include <c10/core/ScalarType.h>
#include <c10/util/Type.h>

#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::detail {

std::string name_of(const std::type_info& type) { return c10::demangle(type.name()); }

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "none";
  }
  if (NestedTensor::is_nested(tensor)) {
    return concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), ", nested]");
  }
  return tensor.is_nested() ? concat(c10::toString(tensor.scalar_type()), " [nested]")
                            : concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]");
}

std::string describe(const State& tree) {
  if (tree.is_tensor()) {
    return describe(tree.tensor());
  }
  PartsText parts(tree.is_map());
  if (tree.is_map()) {
    for (const auto& [key, value] : tree.map()) {
      parts.add(key.is_string() ? key.string() : key.text(), describe(value));
    }
  } else if (tree.is_list() || tree.is_tuple()) {
    for (const State& item : tree.items()) {
      parts.add("", describe(item));
    }
  } else {
    return tree.kind();
  }
  return parts.text();
}

std::string shape_remedy(const at::Tensor& prediction, const at::Tensor& target) {
  const auto adds_one = [](at::IntArrayRef longer, at::IntArrayRef shorter) {
    return longer.size() > 1 && longer.back() == 1 && longer.slice(0, longer.size() - 1) == shorter;
  };
  if (adds_one(prediction.sizes(), target.sizes())) {
    return "use target.unsqueeze(-1) or prediction.squeeze(-1)";
  }
  if (adds_one(target.sizes(), prediction.sizes())) {
    return "use target.squeeze(-1) or prediction.unsqueeze(-1)";
  }
  return prediction.numel() == target.numel() ? "use target.view_as(prediction)"
                                              : "give the target the shape of the model's output";
}

bool is_of_undefined_tensor(std::string_view message) {
  for (const std::string_view words : {"proper Tensor", "undefined", "Undefined", "input of size: [0]"}) {
    if (message.find(words) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

void PartsText::add(const std::string& name, const std::string& value) {
  constexpr std::size_t shown = 8;
  if (++count_ <= shown) {
    text_ += concat(count_ == 1 ? "" : ", ", name, named_ ? ": " : "", value);
  } else if (count_ == shown + 1) {
    text_ += ", …";
  }
}

std::string PartsText::text() const { return concat(named_ ? "{" : "[", text_, named_ ? "}" : "]"); }

}  // namespace danling::inline v0::detail
