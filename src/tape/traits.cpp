#include <tape/traits.hpp>

#include <algorithm>
#include <array>

namespace danling::inline v0::tape {

bool only_writes(std::string_view name) {
  static constexpr std::array<std::string_view, 11> names = {
      "aten::copy_",        "aten::fill_",       "aten::zero_",   "aten::bernoulli_", "aten::normal_", "aten::uniform_",
      "aten::exponential_", "aten::log_normal_", "aten::random_", "aten::geometric_", "aten::cauchy_"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool allocates_only(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

std::vector<std::size_t> hidden_writes(std::string_view name) {
  return name == "aten::native_batch_norm" ? std::vector<std::size_t>{3, 4} : std::vector<std::size_t>{};
}

bool reads_shapes(std::string_view name) {
  return name == "aten::_fused_sdp_choice" || name == "aten::is_same_size" || name.starts_with("aten::sym_");
}

bool reads_on_host(std::string_view name) {
  return name == "aten::_pack_padded_sequence" || name == "aten::_pad_packed_sequence" || name == "aten::is_nonzero";
}

bool changes_memory(std::string_view name) {
  return name == "aten::set_" || name.starts_with("aten::set_.") || name == "aten::resize_" ||
         name == "aten::_resize_output_" || name == "aten::resize_as_";
}

bool is_index_of_numbers(std::string_view name, const torch::jit::Stack& stack) {
  bool out = name == "aten::index";
  if (out) {
    visit_tensors(torch::jit::peek(stack, 1, 2), [&](const at::Tensor& index) {
      out = out && (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
    });
  }
  return out;
}

}  // namespace danling::inline v0::tape
