#include <danling/data/shuffle_stream.hpp>

namespace danling::inline v0::data::detail {

namespace {
constexpr int precision = 16;
constexpr std::int64_t max_buffer = std::int64_t{1} << 40;
}  // namespace

Delays::Delays(ShuffleOptions options) : options_(std::move(options)) {
  check<ConfigError>(options_.buffer_size > 0 && options_.buffer_size <= max_buffer, "data.shuffle",
                     "expected a buffer_size in [1, 2^40], got ", options_.buffer_size);
  set_epoch(0);
}

// Times start at buffer_size: records before it are due as if read at that time. About buffer_size records are due
// later than the returned one: half of the last 2 * buffer_size.
std::int64_t Delays::earliest(std::int64_t number) const { return std::max(number, options_.buffer_size) << precision; }

std::int64_t Delays::due(std::int64_t number) const {
  const std::uint64_t random = order_key(key_, number, {});
  const auto window = static_cast<std::uint64_t>(2 * options_.buffer_size) << precision;
  return earliest(number) + static_cast<std::int64_t>((static_cast<unsigned __int128>(random) * window) >> 64);
}

std::int64_t Delays::oldest_waiting(std::int64_t due) const {
  const std::int64_t number = (due >> precision) - 2 * options_.buffer_size;
  return number > options_.buffer_size ? number : 0;
}

State shuffle_state(const Delays& delays, const ShufflePosition& position, State base) {
  State state;
  state["buffer_size"] = delays.options().buffer_size;
  state["seed"] = static_cast<std::int64_t>(delays.options().seed);  // the same 64 bits
  state["split"] = delays.options().split;
  state["epoch"] = position.epoch;
  state["number"] = position.number;
  state["due"] = position.due;
  state["last"] = position.last;
  state["base"] = std::move(base);
  return state;
}

ShufflePosition read_shuffle_state(const Delays& delays, const State& state) {
  const std::int64_t size = state.at("buffer_size").integer();
  check<StateError>(size == delays.options().buffer_size, "data.shuffle", "expected the state of a buffer of ",
                    delays.options().buffer_size, " records, got one of ", size);
  (void)state.at("seed").integer();
  (void)state.at("split").string();
  return {state.at("epoch").integer(), state.at("number").integer(), state.at("due").integer(),
          state.at("last").integer()};
}

}  // namespace danling::inline v0::data::detail
