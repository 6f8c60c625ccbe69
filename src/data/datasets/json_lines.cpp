#include <danling/data/datasets/json_lines.hpp>

#include <formats/json_tree.hpp>

namespace danling::inline v0::data {

State JsonLines::get(std::int64_t index) const {
  file_->check_size();
  return formats::json_tree<State>(*file_, index);
}

State JsonLines::source_info(std::int64_t index) const {
  return State::Map{{"file", file_->path().string()}, {"line", static_cast<std::int64_t>(file_->line(index))}};
}

}  // namespace danling::inline v0::data
