#include <danling/checkpoint/pretrained.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include <danling/checkpoint/weights.hpp>

#include <checkpoint/identity.hpp>
#include <core/join_first.hpp>
#include <core/name_pattern.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto loading = "checkpoint.load_pretrained";

// In search order: averages come first.
constexpr std::array<std::string_view, 17> wrapping_keys = {"ema",
                                                            "swa",
                                                            "ema_state_dict",
                                                            "state_dict_ema",
                                                            "model_ema",
                                                            "ema_model",
                                                            "model_ema_state_dict",
                                                            "params_ema",
                                                            "model",
                                                            "model_parts",
                                                            "module",
                                                            "state_dict",
                                                            "model_state_dict",
                                                            "net",
                                                            "network",
                                                            "params",
                                                            "weights"};
// Prefixes of data parallelism, averages, Lightning, and user programs.
constexpr std::array<std::string_view, 4> wrapping_prefixes = {"module", "model", "net", "network"};
// Inserted into names by torch.compile, FSDP and activation checkpointing.
constexpr std::array<std::string_view, 3> wrapping_parts = {"_orig_mod.", "_fsdp_wrapped_module.",
                                                            "_checkpoint_wrapped_module."};

std::string text_of(const Key& key) { return key.is_string() ? key.string() : key.text(); }

std::string shape_of(const State& value) {
  if (!value.is_tensor()) {
    return value.kind();
  }
  const at::Tensor& tensor = value.tensor();
  if (!tensor.defined()) {
    return "an undefined tensor";
  }
  const bool dense = tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested();
  return concat(dense ? "" : "sparse, quantized or nested ", c10::toString(tensor.scalar_type()),
                tensor.is_nested() ? "" : concat(" [", join(tensor.sizes()), "]"));
}

bool fits(const at::Tensor& own, const State& value) {
  if (!value.is_tensor() || !value.tensor().defined()) {
    return false;
  }
  const at::Tensor& given = value.tensor();
  return given.layout() == at::kStrided && !given.is_quantized() && !given.is_nested() && !given.is_meta() &&
         given.sizes() == own.sizes() && (own.is_complex() || !given.is_complex());
}

std::optional<TensorIdentity> identity(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? std::optional(identity_of(tensor)) : std::nullopt;
}

struct Entry {
  std::string given;  // name in the file
  std::string name;   // name for the lookup
  const State* value;
};

struct Candidate {
  std::string key;
  std::vector<Entry> entries;
  std::string prefix = {};
  std::size_t hits = 0;  // number of names that the model has
};

void flatten(const State& tree, const std::string& prefix, std::vector<Entry>& out) {
  for (const auto& [key, value] : tree.map()) {
    const std::string name = concat(prefix, text_of(key));
    if (value.is_map()) {
      flatten(value, name + ".", out);
    } else {
      out.push_back({name, name, &value});
    }
  }
}

void find_candidates(const State& tree, const std::string& key, std::vector<Candidate>& out) {
  constexpr auto deepest = 4;
  if (std::count(key.begin(), key.end(), '.') < deepest) {
    for (const auto name : wrapping_keys) {
      const State* child = tree.find(name);
      if (child != nullptr && child->is_map() && !child->map().empty()) {
        find_candidates(*child, concat(key, key.empty() ? "" : ".", name), out);
      }
    }
  }
  out.push_back({.key = key, .entries = {}});
  flatten(tree, "", out.back().entries);
}

using Names = std::unordered_set<std::string>;

// Moves the entries of the model that `skip` matches to `skipped`.
State without_skipped(const State& own, const PretrainedOptions& options, std::vector<std::string>& skipped) {
  if (options.skip.empty()) {
    return own;
  }
  std::vector<std::pair<detail::NamePattern, bool>> patterns;
  for (const auto& pattern : options.skip) {
    patterns.emplace_back(detail::NamePattern(pattern, loading, "a regular expression in skip"), false);
  }
  State out = State::Map();
  for (const auto& [key, value] : own.map()) {
    const std::string name = text_of(key);
    bool skips = false;
    for (auto& [pattern, used] : patterns) {
      if (pattern.is_in(name)) {
        skips = used = true;
      }
    }
    if (skips) {
      skipped.push_back(name);
    } else {
      out[key] = value;
    }
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    check<ConfigError>(patterns[i].second, loading,
                       "expected in skip a pattern that matches a weight of the model, got ", quote(options.skip[i]));
  }
  return out;
}

void rename(std::vector<Entry>& entries, const PretrainedOptions& options, const Names& own) {
  std::vector<std::pair<detail::NamePattern, std::string>> patterns;
  for (const auto& [pattern, replacement] : options.rename_pattern) {
    patterns.emplace_back(detail::NamePattern(pattern, loading, "a regular expression in rename_pattern"), replacement);
  }
  std::unordered_map<std::string, std::string> seen;
  for (Entry& entry : entries) {
    for (const auto& [from, to] : options.rename_prefix) {
      if (entry.name.starts_with(from)) {
        entry.name.replace(0, from.size(), to);
      }
    }
    for (const auto& [pattern, replacement] : patterns) {
      entry.name = pattern.replace(entry.name, replacement);
    }
    for (const auto part : wrapping_parts) {
      for (auto at = entry.name.find(part); at != std::string::npos && !own.contains(entry.name);
           at = entry.name.find(part)) {
        entry.name.erase(at, part.size());
      }
    }
    const auto [other, added] = seen.try_emplace(entry.name, entry.given);
    check<ConfigError>(added, loading, "expected a name for each entry, got ", quote(other->second), " and ",
                       quote(entry.given), ", which both become ", quote(entry.name));
  }
}

bool is_wrapping(std::string_view prefix) {
  while (!prefix.empty()) {
    const auto dot = prefix.find('.');
    if (std::find(wrapping_prefixes.begin(), wrapping_prefixes.end(), prefix.substr(0, dot)) ==
        wrapping_prefixes.end()) {
      return false;
    }
    prefix.remove_prefix(dot + 1);
  }
  return true;
}

// Finds the prefix under which most names match the model; no prefix on a tie.
void find_prefix(Candidate& candidate, const Names& own) {
  std::map<std::string, std::size_t> hits;
  for (const Entry& entry : candidate.entries) {
    for (std::size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
      if (own.contains(entry.name.substr(begin)) && is_wrapping(std::string_view(entry.name).substr(0, begin))) {
        ++hits[entry.name.substr(0, begin)];
      }
      dot = entry.name.find('.', begin);
    }
  }
  std::size_t as_many = 0;
  for (const auto& [prefix, count] : hits) {  // the empty prefix comes first
    as_many = count > candidate.hits ? 1 : as_many + (count == candidate.hits ? 1U : 0U);
    if (count > candidate.hits) {
      candidate.hits = count;
      candidate.prefix = prefix;
    }
  }
  if (as_many > 1 && !candidate.prefix.empty()) {
    candidate.prefix.clear();
    candidate.hits = hits.contains("") ? hits.at("") : 0;
  }
}

std::string at_key(const std::string& key) { return key.empty() ? "" : concat(" under ", quote(key)); }

const State& part_at(const State& checkpoint, const std::string& path, std::string_view origin) {
  const State* part = &checkpoint;
  for (std::size_t begin = 0; !path.empty() && begin <= path.size();) {
    const auto dot = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, dot - begin);
    const State* child = part->is_map() ? part->find(name) : nullptr;
    if (child == nullptr || !child->is_map()) {
      std::vector<std::string> known;
      for (const auto& entry : part->map()) {
        known.push_back(text_of(entry.key));
      }
      fail<CheckpointError>(loading, "expected a map of weights in ", origin, at_key(path), ", got ",
                            child == nullptr ? "none" : child->kind(), "; the keys",
                            at_key(path.substr(0, begin == 0 ? 0 : begin - 1)), " are ", detail::join_first(known, 16));
    }
    part = child;
    begin = dot + 1;
  }
  return *part;
}

[[noreturn]] void fail_found(const State& own, const State& tree, const std::vector<Candidate>& candidates,
                             std::string_view origin) {
  std::vector<std::string> expected, keys;
  for (const auto& entry : own.map()) {
    expected.push_back(text_of(entry.key));
  }
  for (const auto& entry : tree.map()) {
    keys.push_back(text_of(entry.key));
  }
  std::string text = concat("expected weights of this model (", detail::join_first(expected, 4), ") in ", origin,
                            ", got none of them; the keys are ", keys.empty() ? "none" : detail::join_first(keys, 16));
  for (const auto& candidate : candidates) {
    std::vector<std::string> names;
    for (const auto& entry : candidate.entries) {
      names.push_back(entry.given);
    }
    if (!candidate.key.empty() && !names.empty()) {
      text += concat(",", at_key(candidate.key), " ", detail::join_first(names, 8));
    }
  }
  fail<CheckpointError>(loading, text, "; choose them by `key`, or rename them");
}

}  // namespace

std::string WeightMatch::mismatch_summary() const {
  std::string out;
  const auto add = [&out](std::string_view what, const std::vector<std::string>& names) {
    if (!names.empty()) {
      out += concat(out.empty() ? "" : "; ", names.size(), what, " (", detail::join_first(names, 4), ")");
    }
  };
  std::vector<std::string> shapes;
  for (const auto& item : shape_mismatches) {
    shapes.push_back(concat(item.name, " is ", item.expected, " here and ", item.got, " there"));
  }
  add(" missing", missing);
  add(" unexpected", unexpected);
  add(" of another shape", shapes);
  return out;
}

std::vector<std::string> WeightMatch::lines() const {
  std::vector<std::string> out;
  const auto add = [&out](const WeightMatch& part, std::string_view fate) {
    if (!part.complete()) {
      out.push_back(concat(part.mismatch_summary(), fate));
    }
  };
  WeightMatch part;
  part.missing = missing;
  add(part, ": these keep their values");
  part = {};
  part.unexpected = unexpected;
  add(part, ": these are skipped");
  part = {};
  part.shape_mismatches = shape_mismatches;
  add(part, ": these keep their values");
  return out;
}

WeightMatch compare_weights(const State& own, const State& given) {
  WeightMatch out;
  out.weights = State::Map();
  std::set<TensorIdentity> done;
  std::vector<std::pair<std::string, const at::Tensor*>> lacking;
  for (const auto& [key, value] : own.map()) {
    const State* found = given.find(key);
    const at::Tensor& tensor = value.tensor();
    if (found == nullptr) {
      lacking.emplace_back(text_of(key), &tensor);
    } else if (!fits(tensor, *found)) {
      out.shape_mismatches.push_back({text_of(key), shape_of(value), shape_of(*found)});
    } else {
      out.loaded.push_back(text_of(key));
      out.weights[key] = *found;
      if (const auto which = identity(tensor)) {
        done.insert(*which);
      }
    }
  }
  for (const auto& [name, tensor] : lacking) {
    const auto which = identity(*tensor);
    if (!which || !done.contains(*which)) {
      out.missing.push_back(name);
    }
  }
  for (const auto& entry : given.map()) {
    if (own.find(entry.key) == nullptr) {
      out.unexpected.push_back(text_of(entry.key));
    }
  }
  return out;
}

WeightMatch match_weights(const State& own, const State& checkpoint, const PretrainedOptions& options,
                          std::string_view origin) {
  check<CheckpointError>(checkpoint.is_map(), loading, "expected a map of weights in ", origin, ", got ",
                         checkpoint.kind());
  const State& tree = part_at(checkpoint, options.key, origin);
  Names names;
  for (const auto& entry : own.map()) {
    names.insert(text_of(entry.key));
  }
  std::vector<Candidate> candidates;
  find_candidates(tree, options.key, candidates);
  const Candidate* found = nullptr;
  for (auto candidate = candidates.begin(); candidate != candidates.end() && found == nullptr; ++candidate) {
    rename(candidate->entries, options, names);
    find_prefix(*candidate, names);
    found = candidate->hits > 0 ? &*candidate : nullptr;
  }
  if (found == nullptr) {
    fail_found(own, tree, candidates, origin);
  }
  State given = State::Map();
  std::unordered_map<std::string, std::string> original;
  std::vector<std::string> outside;
  for (const Entry& entry : found->entries) {
    if (entry.name.starts_with(found->prefix)) {
      const std::string name = entry.name.substr(found->prefix.size());
      given[name] = *entry.value;
      original[name] = entry.given;
    } else if (entry.name != "n_averaged" || !found->prefix.starts_with("module.")) {  // AveragedModel's counter
      outside.push_back(entry.given);
    }
  }
  std::vector<std::string> skipped;
  const State wanted = without_skipped(own, options, skipped);
  for (const auto& name : skipped) {
    given.map().erase(name);
  }
  WeightMatch out = compare_weights(wanted, given);
  out.key = found->key;
  out.prefix = found->prefix;
  out.skipped = std::move(skipped);
  for (auto& name : out.unexpected) {
    name = original.at(name);
  }
  out.unexpected.insert(out.unexpected.end(), outside.begin(), outside.end());
  check<CheckpointError>(!options.strict || out.complete(), loading, "expected weights of the same architecture in ",
                         origin, at_key(out.key), ", got ", out.mismatch_summary(),
                         "; rename them, choose others by `key`, or set strict to false to leave those as they are");
  return out;
}

void copy_weights(const State& own, const State& given) {
  for (const auto& [key, value] : own.map()) {
    const State* from = given.find(key);
    if (from != nullptr && (!identity(value.tensor()) || identity(value.tensor()) != identity(from->tensor()))) {
      value.tensor().detach().copy_(from->tensor());
    }
  }
}

WeightMatch load_pretrained(const State& own, const State& checkpoint, const PretrainedOptions& options) {
  WeightMatch out = match_weights(own, checkpoint, options);
  copy_weights(own, out.weights);
  return out;
}

WeightMatch load_pretrained(const State& own, const std::filesystem::path& path, const PretrainedOptions& options) {
  WeightMatch out = match_weights(own, load_weights(path), options, concat("file ", quote(path.string())));
  copy_weights(own, out.weights);
  return out;
}

}  // namespace danling::inline v0
