// expect: concat joins datasets with datasets, and streams of records with streams of records
#include <danling/data/concat.hpp>

namespace concat_of_dataset_and_stream {

struct Words {
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
};
struct Speech {
  std::optional<std::string> next();
  void reset(std::int64_t epoch);
  danling::State state_dict() const;
  void load_state_dict(const danling::State& state);
};

#ifdef WRONG
using Second = Speech;
#else
using Second = Words;
#endif

auto use() { return danling::data::concat(Words(), Second()); }

}  // namespace concat_of_dataset_and_stream
