// States that no file can hold.
#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace hostile_states {
namespace {

using danling::State;

// With the address sanitizer's frames the destructor of 10,000 levels would leave the stack.
#ifdef __SANITIZE_ADDRESS__
constexpr int levels = 1000;
#else
constexpr int levels = 10000;
#endif

TEST_CASE("save_file: a state of 10,000 levels is an error, and nothing is left", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto refused = [&](const State& state) {
    const std::string text =
        danling_test::error_of<danling::CheckpointError>([&] { danling::save_file(state, directory / "deep.pth"); });
    CHECK(std::filesystem::is_empty(directory.path()));
    return text;
  };
  State lists;
  State maps;
  for (int i = 0; i < levels; ++i) {
    State::List list;
    list.push_back(std::move(lists));
    lists = State(std::move(list));
    State::Map map;
    map.set("a", std::move(maps));
    maps = State(std::move(map));
  }
  std::string path;
  for (int i = 0; i < 20; ++i) {
    path += "[0]";
  }
  CHECK(refused(lists) == "[checkpoint.write] expected at most 256 levels of nesting, got more at '" + path + "'");
  path = "a";
  for (int i = 0; i < 29; ++i) {
    path += ".a";
  }
  CHECK(refused(maps) == "[checkpoint.write] expected at most 256 levels of nesting, got more at '" + path + ".'");
}

}  // namespace
}  // namespace hostile_states
