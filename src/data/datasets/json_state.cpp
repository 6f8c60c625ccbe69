#include "json_state.hpp"

#include <utility>

namespace danling::inline v0::data {

State without_records(formats::RecordTree tree) {
  if (tree.is_map()) {
    State::Map out;
    for (const auto& [key, item] : tree.map()) {
      out.set(key, without_records(item));
    }
    return out;
  }
  if (tree.is_list()) {
    State::List out;
    out.reserve(tree.list().size());
    for (formats::RecordTree& item : tree.list()) {
      out.push_back(without_records(std::move(item)));
    }
    return out;
  }
  if (tree.is_bool()) {
    return tree.boolean();
  }
  if (tree.is_integer()) {
    return tree.integer();
  }
  if (tree.is_double()) {
    return tree.number();
  }
  return tree.is_string() ? State(std::move(tree).string()) : State();
}

}  // namespace danling::inline v0::data
