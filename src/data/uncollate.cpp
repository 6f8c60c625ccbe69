#include <danling/data/uncollate.hpp>

#include <string>

#include <danling/core/error.hpp>
#include <danling/data/collate.hpp>

#include <data/columns.hpp>

namespace danling::inline v0::data {

namespace {

at::Tensor only_row(const at::Tensor& tensor, const std::string& path) {
  if (!tensor.defined()) {
    return tensor;
  }
  check<DataError>(tensor.dim() > 0 && tensor.size(0) == 1, "data.uncollate", "expected ", path, " of one sample, got ",
                   detail::describe(tensor));
  return tensor.select(0, 0);
}

State only_part(const State& tree, const std::string& path) {
  if (tree.is_tensor()) {
    return only_row(tree.tensor(), path);
  }
  if (detail::is_column(tree)) {
    check<DataError>(tree.items().size() == 1, "data.uncollate", "expected ", path, " of one sample, got ",
                     tree.items().size(), " texts");
    return tree.items().front();
  }
  if (tree.is_list() || tree.is_tuple()) {
    State::List items;
    for (const State& item : tree.items()) {
      items.push_back(only_part(item, detail::below(path, items.size())));
    }
    return tree.is_tuple() ? State(State::Tuple{std::move(items)}) : State(std::move(items));
  }
  if (tree.is_map()) {
    State::Map map;
    for (const auto& [key, item] : tree.map()) {
      map.set(key, only_part(item, detail::below(path, key.is_string() ? key.string() : to_text(key.integer()))));
    }
    return map;
  }
  return tree;
}

}  // namespace

Sample uncollate(Batch batch) {
  check<DataError>(!batch.loss_normalizer, "data.uncollate",
                   "expected a batch without a loss_normalizer, which a sample cannot hold, got ",
                   batch.loss_normalizer.value_or(0), "; map_batches keeps it");
  return {.input = only_row(batch.input, "input"),
          .target = only_row(batch.target, "target"),
          .extra = only_part(batch.extra, "extra")};
}

at::Tensor detail::uncollate_tensor(const at::Tensor& batch) { return only_row(batch, "a tensor"); }

}  // namespace danling::inline v0::data
