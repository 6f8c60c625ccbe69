// Descriptions of values for messages: kinds and shapes of tensors, names of types.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>
#include <danling/tensors/batch_size.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::detail {

/// Returns the name of a type as in source code.
std::string name_of(const std::type_info& type);

/// "Float [8, 4]"; "none" for an undefined tensor.
std::string describe(const at::Tensor& tensor);
/// A map as "{left: Float [8, 4], right: …}", a list as "[Float [8, 4], …]", other values by their kind.
std::string describe(const State& tree);

/// Returns the advice for a prediction and a target that should have one shape: "use target.unsqueeze(-1) or …".
std::string shape_remedy(const at::Tensor& prediction, const at::Tensor& target);

/// Returns true if a message of LibTorch is about an undefined tensor.
bool is_of_undefined_tensor(std::string_view message);

/// Builds the text for a container: its first parts, then how many more it has.
class PartsText {
 public:
  explicit PartsText(bool named) : named_(named) {}
  void add(const std::string& name, const std::string& value);
  std::string text() const;

 private:
  bool named_;
  std::string text_;
  std::size_t count_ = 0;
};

template <class T>
std::string describe(const T& value) {
  if constexpr (std::convertible_to<const T&, const at::Tensor&>) {
    return describe(static_cast<const at::Tensor&>(value));
  } else if constexpr (Mapping<T>) {
    PartsText parts(true);
    for (const auto& entry : value) {
      parts.add(concat(entry.first), describe(entry.second));
    }
    return parts.text();
  } else if constexpr (Container<T>) {
    PartsText parts(false);
    each_part(value, [&](const auto& part) { parts.add("", describe(part)); });
    return parts.text();
  } else if constexpr (HasBatchSize<T>) {
    return concat(name_of(typeid(T)), " of ", danling::batch_size(value), " samples");
  } else {
    return name_of(typeid(T));
  }
}

}  // namespace danling::inline v0::detail
