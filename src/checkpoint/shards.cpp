#include <checkpoint/shards.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/json_lines.hpp>

#include <core/join_first.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr auto shards_where = "checkpoint.read";

// In the search order of Hugging Face's libraries.
constexpr std::array<std::string_view, 4> known_files = {"model.safetensors", "model.safetensors.index.json",
                                                         "pytorch_model.bin", "pytorch_model.bin.index.json"};

formats::RecordTree parse_index(const fs::path& path) {
  try {
    return formats::parse_json(formats::InputFile(path).text(), concat("index ", quote(path.string())));
  } catch (const DataError& error) {
    const std::string_view text = error.what();
    fail<CheckpointError>(shards_where, text.substr(text.find("] ") + 2));
  }
}

// Reads the shard of each key.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const formats::RecordTree tree = parse_index(path);
  const auto* shards = tree.is_map() ? tree.find("weight_map") : nullptr;
  check<CheckpointError>(shards != nullptr && shards->is_map() && !shards->map().empty(), shards_where,
                         "expected 'weight_map', a map from keys to shards, in index ", quote(path.string()), ", got ",
                         shards == nullptr  ? std::string("none")
                         : shards->is_map() ? std::string("an empty one")
                                            : std::string(shards->kind()));
  std::map<std::string, std::string> out;
  for (const auto& [key, shard] : shards->map()) {
    check<CheckpointError>(shard.is_string(), shards_where, "expected the name of a shard for key ",
                           quote(key.string()), " in index ", quote(path.string()), ", got ", shard.kind());
    const std::string& name = shard.string();
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    check<CheckpointError>(plain, shards_where, "expected shards in the directory of index ", quote(path.string()),
                           ", got ", quote(name), " for key ", quote(key.string()));
    out.emplace(key.string(), name);
  }
  return out;
}

State load_shard(const fs::path& path) {
  State state = formats::is_safetensors(path) ? load_safetensors(path) : load_file(path);
  check<CheckpointError>(state.is_map(), shards_where, "expected a map of weights in shard ", quote(path.string()),
                         ", got ", state.kind());
  return state;
}

}  // namespace

fs::path weights_in(const fs::path& directory) {
  for (const auto name : known_files) {
    std::error_code missing;
    if (fs::exists(directory / name, missing)) {
      return directory / name;
    }
  }
  fail<CheckpointError>(shards_where, "expected ", join(known_files), " in directory ", quote(directory.string()),
                        ", got none of them; name the file");
}

bool is_shard_index(const fs::path& path) {
  const formats::InputFile file(path);
  return file.text(0, std::min<std::uint64_t>(file.size(), 1)) == "{" && !formats::is_safetensors(path);
}

State load_shards(const fs::path& index) {
  const auto shard_of = read_index(index);
  std::vector<std::string> shards, missing;
  for (const auto& entry : shard_of) {
    shards.push_back(entry.second);
  }
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  for (const auto& shard : shards) {  // checks all before reading any
    std::error_code error;
    if (!fs::exists(index.parent_path() / shard, error)) {
      missing.push_back(shard);
    }
  }
  if (!missing.empty()) {
    fail<CheckpointError>(shards_where, "expected ", shards.size(), " shards next to index ", quote(index.string()),
                          ", got none of ", detail::join_first(missing, 4));
  }
  State out = State::Map();
  std::map<std::string, std::string> found;
  for (const auto& shard : shards) {
    const State part = load_shard(index.parent_path() / shard);
    for (const auto& [key, value] : part.map()) {
      const std::string name = key.is_string() ? key.string() : key.text();
      const auto [first, added] = found.try_emplace(name, shard);
      check<CheckpointError>(added, shards_where, "expected each key in one shard of index ", quote(index.string()),
                             ", got ", quote(name), " in ", first->second, " and ", shard);
      out[name] = value;
    }
  }
  for (const auto& [key, shard] : shard_of) {
    const auto got = found.find(key);
    check<CheckpointError>(got != found.end() && got->second == shard, shards_where, "expected key ", quote(key),
                           " in shard ", shard, ", as index ", quote(index.string()), " says, got ",
                           got == found.end() ? std::string("none") : concat("it in ", got->second));
  }
  return out;
}

}  // namespace danling::inline v0
