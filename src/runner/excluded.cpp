#include <runner/excluded.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

namespace danling::inline v0::detail {
namespace {

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

// Drops const: the caller knows whether its tree is const.
State* child(State& tree, const Key& key) {
  if (tree.is_map()) {
    return tree.map().find(key);
  }
  if (!(tree.is_list() || tree.is_tuple()) || key.is_string()) {
    return nullptr;
  }
  auto& items = const_cast<State::List&>(tree.items());
  const std::int64_t at = key.integer();
  return at >= 0 && at < static_cast<std::int64_t>(items.size()) ? &items[static_cast<std::size_t>(at)] : nullptr;
}

const State* child(const State& tree, const Key& key) { return child(const_cast<State&>(tree), key); }

std::optional<Key> key_of(const State& tree, std::string_view text) {
  if (child(tree, Key(text)) != nullptr) {
    return Key(text);
  }
  const auto number = number_of(text);
  return number && child(tree, Key(*number)) != nullptr ? std::optional<Key>(*number) : std::nullopt;
}

bool find(const State& tree, std::string_view path, StatePath& out) {
  if (const auto key = key_of(tree, path)) {
    out.push_back(*key);
    return true;
  }
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    if (const auto key = key_of(tree, path.substr(0, dot))) {
      out.push_back(*key);
      if (find(*child(tree, *key), path.substr(dot + 1), out)) {
        return true;
      }
      out.pop_back();
    }
  }
  return false;
}

}  // namespace

std::string part_name(std::string_view text) {
  const auto dot = std::min(text.find('.'), text.size());
  const std::string_view first = text.substr(0, dot);
  const std::string_view known = first == "data_loader" || first == "dataloader" ? "dataloaders"
                                 : first == "lr_scheduler"                       ? "scheduler"
                                                                                 : first;
  return concat(known, text.substr(dot));
}

std::optional<StatePath> find_path(const State& tree, std::string_view path) {
  StatePath out;
  return find(tree, path, out) ? std::optional(std::move(out)) : std::nullopt;
}

void keep_current(State& checkpoint, const State& current, const StatePath& path, std::string_view text) {
  State* parent = &checkpoint;
  const State* value = &current;
  for (std::size_t i = 0; i < path.size(); ++i) {
    value = value != nullptr ? child(*value, path[i]) : nullptr;
    if (i + 1 < path.size()) {
      parent = child(*parent, path[i]);
      if (parent == nullptr) {
        return;
      }
    }
  }
  if (parent->is_map()) {
    // Copies: loading must not write into the state that it reads.
    value != nullptr ? parent->map().set(path.back(), clone(*value)) : void(parent->map().erase(path.back()));
  } else if (State* item = child(*parent, path.back())) {
    check<ConfigError>(value != nullptr, "runner.load_checkpoint", "expected in checkpoint.exclude_from_loading items ",
                       "of lists that this run has too, got ", quote(text));
    *item = clone(*value);
  }
}

}  // namespace danling::inline v0::detail
