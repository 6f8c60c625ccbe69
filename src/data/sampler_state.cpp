#include <data/sampler_state.hpp>

#include <bit>
#include <cstring>
#include <string>

#include <danling/core/error.hpp>

namespace danling::inline v0::data::detail {

State sampler_state(std::string_view type, std::int64_t size) {
  State state;
  state["type"] = std::string(type);
  state["size"] = size;
  return state;
}

void check_sampler_state(const State& state, std::string_view type, std::int64_t size) {
  const std::string& saved = state.at("type").string();
  check<StateError>(saved == type, "data.sampler", "expected the state of a ", type, " sampler, got that of a ", saved,
                    " sampler; the order of records (shuffle) must be the one that the state was saved with");
  const std::int64_t saved_size = state.at("size").integer();
  check<StateError>(saved_size == size, "data.sampler", "expected a state of ", size, " records, got one of ",
                    saved_size,
                    "; load it with the data that it was saved with; a run may leave it out "
                    "(checkpoint.exclude_from_loading: dataloaders)");
}

void check_same(const State& state, std::string_view name, std::int64_t now, std::string_view what) {
  check<StateError>(state.at(name).integer() == now, "data.sampler", "expected the state of a sampler with the same ",
                    what, ", got one with others");
}

void check_replacement(const State& state, bool replacement) {
  const bool saved = state.at("replacement").boolean();
  check<StateError>(saved == replacement, "data.sampler", "expected the state of a sampler with",
                    replacement ? "" : "out", " replacement, got one with", saved ? "" : "out");
}

std::int64_t fingerprint(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ bytes.size();
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0xd6e8feb86659fd93;
    hash ^= hash >> 32;
  };
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t length = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
    std::memcpy(&word, bytes.data(), length);
    add(word);
    bytes = bytes.subspan(length);
  }
  return std::bit_cast<std::int64_t>(hash);
}

}  // namespace danling::inline v0::data::detail
