#include <danling/config/custom_options.hpp>

#include <algorithm>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

/// Presents a struct of options as a section.
struct Listing {
  const detail::CustomOptionsType& type;
  std::shared_ptr<void> options = type.copy(nullptr);
  void fields(Fields& f) { type.list(options.get(), f); }
};

}  // namespace

void CustomOptionTypes::add(const detail::CustomOptionsType& type, std::string_view where,
                            const std::vector<std::string>& known) {
  const auto same = [&](const auto& other) { return other.id == type.id; };
  if (std::any_of(types_.begin(), types_.end(), same)) {
    return;
  }
  const Listing listing{type};
  const ConfigTree tree = to_tree(listing);
  for (const auto& entry : tree.map()) {
    const std::string& key = entry.key.string();
    const auto refuse_taken = [&](bool taken, std::string_view by) {
      check<ConfigError>(!taken, where, "expected options with new names, got ", quote(key), ", which ", by, " has");
    };
    for (const auto& other : types_) {
      refuse_taken(to_tree(Listing{other}).find(key) != nullptr, "another registered type");
    }
    refuse_taken(std::find(known.begin(), known.end(), key) != known.end(), "the library");
    check<ConfigError>(entry.value.is_null(), where, "expected a std::optional without a value for option ", quote(key),
                       ", got one that is always set");
  }
  types_.push_back(type);
}

CustomOptions::CustomOptions(const CustomOptions& other) {
  for (const Entry& entry : other.entries_) {
    entries_.push_back({entry.type, entry.type.copy(entry.value.get())});
  }
}

CustomOptions& CustomOptions::operator=(const CustomOptions& other) {
  if (this != &other) {
    *this = CustomOptions(other);
  }
  return *this;
}

void CustomOptions::fields(Fields& f, const CustomOptionTypes& types) {
  for (const auto& type : types.all()) {
    type.list(get_or_make(type), f);
  }
}

const void* CustomOptions::find(std::type_index id) const {
  for (const Entry& entry : entries_) {
    if (entry.type.id == id) {
      return entry.value.get();
    }
  }
  return nullptr;
}

void* CustomOptions::get_or_make(const detail::CustomOptionsType& type) {
  if (const void* found = find(type.id); found != nullptr) {
    return const_cast<void*>(found);
  }
  return entries_.emplace_back(Entry{type, type.copy(nullptr)}).value.get();
}

}  // namespace danling::inline v0
