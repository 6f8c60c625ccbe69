// Finds a run by the beginning of its id.
#include <algorithm>
#include <map>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
namespace fs = std::filesystem;

constexpr std::size_t shortest_name = 4;  // characters of a short name

// Returns the config id within a run id.
std::string config_part(const std::string& id) { return id.substr(id.rfind('-') + 1); }

std::size_t common_length(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Returns the shortest unique beginning of each name, of at least shortest_name characters; empty for a repeated name.
std::vector<std::string> beginnings(const std::vector<std::string>& names) {
  std::vector<std::size_t> order(names.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  std::vector<std::string> out(names.size());
  for (std::size_t at = 0; at < order.size(); ++at) {
    const auto& name = names[order[at]];
    std::size_t shared = 0;
    bool twice = false;
    for (const std::size_t other : {at - 1, at + 1}) {
      if (other < order.size()) {  // false for at - 1 of the first, which wraps around
        shared = std::max(shared, common_length(name, names[order[other]]));
        twice = twice || names[order[other]] == name;
      }
    }
    if (!twice) {
      out[order[at]] = name.substr(0, std::max(shared + 1, shortest_name));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> short_names(const std::vector<fs::path>& dirs) {
  std::vector<std::string> configs;
  std::vector<std::string> whole;
  for (const auto& dir : dirs) {
    const danling::RunDirectory run(dir);
    configs.push_back(config_part(run.id()));
    whole.push_back(concat(run.folder(), "/", configs.back()));
  }
  auto out = beginnings(configs);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].empty()) {  // the config has runs in several lineages or code versions
      out[i] = concat(whole[i].substr(0, whole[i].find('/') + 1), configs[i].substr(0, shortest_name));
      const auto same = std::count_if(whole.begin(), whole.end(),
                                      [&](const std::string& other) { return other.starts_with(out[i]); });
      out[i] = same == 1 ? out[i] : whole[i];
    }
  }
  return out;
}

fs::path find_run(const std::string& word, const fs::path& root) {
  constexpr auto where = "danling runs";
  std::error_code error;
  if (fs::is_directory(word, error) && (word.find('/') != std::string::npos || danling::is_run_directory(word))) {
    danling::detail::check<ConfigError>(danling::is_run_directory(word), where, "expected a run's directory, got ",
                                        quote(word), ", which has neither a lock nor metadata of a run");
    return word;
  }
  danling::detail::check<ConfigError>(fs::is_directory(root, error), where, "expected a run, got ", quote(word),
                                      ": no such path, and no directory ", quote(root.string()),
                                      " to look for its id; --root names another one");
  const auto dirs = danling::list_runs(root);
  std::vector<fs::path> found;
  std::vector<fs::path> in_folder;
  std::vector<std::string> names;
  for (const auto& dir : dirs) {
    const danling::RunDirectory run(dir);
    const std::string id = run.id();
    const std::string config = config_part(id);
    if (word == id || (word == config && id == config)) {
      return dir;
    }
    if (id.starts_with(word) || config.starts_with(word) || concat(run.folder(), "/", id).starts_with(word) ||
        concat(run.folder(), "/", config).starts_with(word)) {
      found.push_back(dir);
    }
    if (run.folder() == word || run.lineage() == word) {
      in_folder.push_back(dir);
    }
    names.push_back(id);
    names.push_back(config);
    names.push_back(run.folder());
  }
  if (found.empty() || in_folder.size() == 1) {
    found = in_folder;
  }
  if (found.size() == 1) {
    return found.front();
  }
  danling::detail::check<ConfigError>(!found.empty(), where, "expected a run below ", quote(root.string()), ", got ",
                                      quote(word), danling::detail::did_you_mean(word, names), "; danling runs ls ",
                                      root.string(), " lists the ", dirs.size(), " there");
  const auto shorts = short_names(dirs);
  std::vector<std::string> some;
  for (std::size_t i = 0; i < dirs.size() && some.size() < 5; ++i) {
    if (std::find(found.begin(), found.end(), dirs[i]) != found.end()) {
      some.push_back(concat(shorts[i], " (", dirs[i].string(), ")"));
    }
  }
  danling::detail::fail<ConfigError>(where, "expected the beginning of one run's id, got ", quote(word), ", which ",
                                     found.size(), " have: ", danling::detail::join(some),
                                     found.size() > some.size() ? ", ..." : "");
}

}  // namespace danling_command
