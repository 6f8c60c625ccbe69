// expect: shuffle needs a stream of records; loaders shuffle datasets
#include <danling/data/shuffle_stream.hpp>

namespace shuffle_of_a_dataset {

struct Words {
#ifdef WRONG
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
#else
  std::optional<std::string> next();
  void reset(std::int64_t epoch);
  danling::State state_dict() const;
  void load_state_dict(const danling::State& state);
#endif
};

auto use() { return danling::data::shuffle(Words(), {.buffer_size = 4}); }

}  // namespace shuffle_of_a_dataset
