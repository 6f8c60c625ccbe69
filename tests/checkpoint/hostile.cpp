// States that no file can hold.
#include <pthread.h>

#include <functional>

#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace hostile_states {
namespace {

using danling::State;

constexpr int levels = 10000;

// Runs `body` on a thread with a stack of 256 MiB: without optimization the destructor of that many levels needs more
// than the main thread has.
void on_large_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, std::size_t{256} << 20) == 0);
  pthread_t thread{};
  const auto run = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  // No assertion while the thread makes some: Catch's are not for several threads.
  const int created = pthread_create(&thread, &attributes, run, &body);
  const int joined = created == 0 ? pthread_join(thread, nullptr) : 0;
  pthread_attr_destroy(&attributes);
  REQUIRE(created == 0);
  REQUIRE(joined == 0);
}

TEST_CASE("save_file: a state of 10,000 levels is an error, and nothing is left", "[checkpoint]") {
#if defined(__SANITIZE_THREAD__)
  WARN("skipped: the thread sanitizer ends the process at 65,536 nested calls");
  return;
#endif
  const danling_test::TempDir directory;
  const auto refused = [&](const State& state) {
    const std::string text =
        danling_test::error_of<danling::CheckpointError>([&] { danling::save_file(state, directory / "deep.pth"); });
    CHECK(std::filesystem::is_empty(directory.path()));
    return text;
  };
  on_large_stack([&] {
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
  });
}

}  // namespace
}  // namespace hostile_states
