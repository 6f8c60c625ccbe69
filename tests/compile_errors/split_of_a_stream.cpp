// expect: records are selected by index, which a stream does not have
#include <danling/data/subset.hpp>

namespace split_of_a_stream {

struct Words {
#ifdef WRONG
  std::optional<std::string> next();
  void reset(std::int64_t epoch);
  danling::State state_dict() const;
  void load_state_dict(const danling::State& state);
#else
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
#endif
};

auto use() { return danling::data::random_split(Words(), {0.5, 0.5}, 0); }

}  // namespace split_of_a_stream
