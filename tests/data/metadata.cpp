// Keys against JAX and metadata against Datarax: golden values of tests/golden/data_metadata.py.
#include <danling/data/metadata.hpp>

#include <fstream>

#include <nlohmann/json.hpp>

#include <danling/data/random.hpp>

#include <support/error.hpp>

namespace {

namespace metadata_test {

namespace data = danling::data;
using danling::State;
using danling_test::error_of;
using data::Metadata;
using data::RandomKey;
using Json = nlohmann::json;

const Json& golden() {
  static const Json json = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/metadata.json");
    return Json::parse(file);
  }();
  return json;
}

Json halves(const RandomKey& key) { return {key.high, key.low}; }
Json halves(const std::optional<RandomKey>& key) { return key ? halves(*key) : Json(); }

template <class Keys>
Json all_halves(const Keys& keys) {
  Json out = Json::array();
  for (const auto& key : keys) {
    out.push_back(halves(key));
  }
  return out;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const State& state) {
  if (state.is_map()) {
    Json out = Json::object();
    for (const auto& [key, value] : state.map()) {
      out[key.string()] = json_of(value);
    }
    return out;
  }
  if (state.is_list()) {
    Json out = Json::array();
    for (const State& item : state.list()) {
      out.push_back(json_of(item));
    }
    return out;
  }
  return state.is_null() ? Json() : state.is_integer() ? Json(state.integer()) : Json(state.string());
}

State state_of(const Json& json) {
  if (json.is_object()) {
    State out = State::Map();
    for (const auto& [key, value] : json.items()) {
      out[key] = state_of(value);
    }
    return out;
  }
  return json.is_null() ? State() : json.is_number() ? State(json.get<std::int64_t>()) : State(json.get<std::string>());
}

Json json_of(const Metadata& metadata) {
  return {{"index", metadata.index},
          {"epoch", metadata.epoch},
          {"global_step", metadata.global_step},
          {"batch_idx", or_null(metadata.batch_idx)},
          {"shard_id", or_null(metadata.shard_id)},
          {"rng_key", halves(metadata.rng_key)},
          {"entry_key", or_null(metadata.entry_key)},
          {"source_info", json_of(metadata.source_info)}};
}

Metadata metadata_of(const Json& json) {
  const auto number = [&](const char* name) {
    return json[name].is_null() ? std::nullopt : std::optional(json[name].get<std::int64_t>());
  };
  Metadata out;
  out.index = *number("index");
  out.epoch = *number("epoch");
  out.global_step = *number("global_step");
  out.batch_idx = number("batch_idx");
  out.shard_id = number("shard_id");
  if (const Json& key = json["rng_key"]; !key.is_null()) {
    out.rng_key = RandomKey{key[0].get<std::uint32_t>(), key[1].get<std::uint32_t>()};
  }
  if (const Json& key = json["entry_key"]; !key.is_null()) {
    out.entry_key = key.get<std::string>();
  }
  out.source_info = state_of(json["source_info"]);
  return out;
}

TEST_CASE("RandomKey: keys, splits and folds are JAX's", "[data]") {
  for (const Json& row : golden()["keys"]) {
    const RandomKey key = RandomKey::of(row["seed"].get<std::uint64_t>());
    CAPTURE(row["seed"].get<std::uint64_t>());
    CHECK(halves(key) == row["key"]);
    for (const auto& [num, keys] : row["split"].items()) {
      CHECK(all_halves(key.split(std::stoll(num))) == keys);
    }
    for (const auto& [folded, expected] : row["fold_in"].items()) {
      CHECK(halves(key.fold_in(std::stoull(folded))) == expected);
    }
    CHECK(halves(key.fold_in(3).split(2)[1]) == row["twice"]);
  }
  CHECK(error_of<danling::DataError>([] { RandomKey().split(-1); }) ==
        "[data.random] expected a number of keys of at least 0, got -1");
}

TEST_CASE("Metadata: every method gives what Datarax' gives", "[data]") {
  for (const Json& row : golden()["metadata"]) {
    const Metadata metadata = metadata_of(row["given"]);
    REQUIRE(json_of(metadata) == row["given"]);
    CHECK(all_halves(metadata.split_rng()) == row["split_rng"]);
    CHECK(all_halves(metadata.split_rng(3)) == row["split_rng_3"]);
    CHECK(json_of(metadata.next_rng()) == row["next_rng"]);
    CHECK(json_of(metadata.increment_step()) == row["increment_step"]);
    CHECK(json_of(metadata.increment_epoch()) == row["increment_epoch"]);
    CHECK(json_of(metadata.increment_batch()) == row["increment_batch"]);
    CHECK(json_of(metadata.with_shard(9)) == row["with_shard"]);
    CHECK(json_of(metadata.to_dict()) == row["to_dict"]);
    CHECK(json_of(Metadata::from_dict(metadata.to_dict())) == row["from_dict"]);
  }
}

TEST_CASE("Metadata: merging takes what the other knows, as Datarax does", "[data]") {
  for (const Json& row : golden()["merge"]) {
    CHECK(json_of(metadata_of(row["a"]).merge(metadata_of(row["b"]))) == row["merged"]);
  }
  Metadata alone;
  alone.epoch = 3;
  CHECK(alone.merge(std::nullopt) == alone);
  CHECK(alone.merge(std::optional<Metadata>(alone.increment_epoch())).epoch == 4);
}

TEST_CASE("Metadata: from_dict takes either name of the key, and refuses what is no field", "[data]") {
  State dict;
  dict["key"] = "a";
  CHECK(Metadata::from_dict(dict).entry_key == "a");
  CHECK(Metadata::from_dict(dict) == Metadata{.entry_key = "a"});
  CHECK_FALSE(Metadata::from_dict(dict) == Metadata());
  dict["idx"] = 1;
  CHECK(error_of<danling::StateError>([&] { Metadata::from_dict(dict); }) ==
        "[data.metadata] expected a field of Metadata, got 'idx'");
  State key;
  key["rng_key"] = State::List{1};
  CHECK(error_of<danling::StateError>([&] { Metadata::from_dict(key); }) ==
        "[data.metadata] expected two numbers for rng_key, got 1");
  key["rng_key"] = State::List{1, -1};
  CHECK(error_of<danling::StateError>([&] { Metadata::from_dict(key); }) ==
        "[data.metadata] expected each half of rng_key in [0, 2^32), got -1");
  State name;
  name["index"] = "one";
  CHECK(error_of<danling::StateError>([&] { Metadata::from_dict(name); }) ==
        "[state.read] expected an integer, got a string");
  CHECK(error_of<danling::DataError>([] { Metadata().split_rng(-1); }) ==
        "[data.metadata] expected a number of keys of at least 0, got -1");
}

}  // namespace metadata_test

}  // namespace
