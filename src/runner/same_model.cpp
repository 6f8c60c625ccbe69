#include <runner/same_model.hpp>

#include <string>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

std::string lines_of(const NamedTensors& state) {
  std::string out;
  for (const auto& [name, tensor] : state) {
    out += concat(name, " ", c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]\n");
  }
  return out;
}

std::string line_of(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) {
    begin = text.find('\n', begin);
    begin += begin == std::string::npos ? 0 : 1;
  }
  return begin >= text.size() ? "nothing more" : text.substr(begin, text.find('\n', begin) - begin);
}

// Names the first difference only, since models have thousands of lines.
void check_alike(const Group& group, const NamedTensors& state) {
  const auto all = group.all_gather(lines_of(state));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all.front()) {
      std::size_t line = 0;
      while (line_of(all[rank], line) == line_of(all.front(), line)) {
        ++line;
      }
      fail<DistributedError>("runner.materialize_model", "expected the same model on all ranks, got '",
                             line_of(all.front(), line), "' on rank 0 and '", line_of(all[rank], line), "' on rank ",
                             rank, "; the constructor of the runner must not depend on the rank");
    }
  }
}

}  // namespace

void make_same(const Group& group, const ModelHandle& model) {
  if (group.alone()) {
    return;
  }
  const NamedTensors state = model.named_state();
  check_alike(group, state);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) {
    at::Tensor target = tensor;
    group.broadcast(target, /*root=*/0);
  }
}

}  // namespace danling::inline v0::detail
