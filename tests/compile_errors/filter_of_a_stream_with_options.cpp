// expect: filter takes options for a dataset only: one thread reads a stream
#include <danling/data/filter.hpp>

namespace filter_of_a_stream_with_options {

struct Words {
  std::optional<std::string> next();
  void reset(std::int64_t epoch);
  danling::State state_dict() const;
  void load_state_dict(const danling::State& state);
};

auto use() {
  const auto any = [](const std::string&) { return true; };
#ifdef WRONG
  return danling::data::filter(Words(), any, {.num_threads = 2});
#else
  return danling::data::filter(Words(), any);
#endif
}

}  // namespace filter_of_a_stream_with_options
