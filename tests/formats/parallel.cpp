#include <formats/parallel.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <formats/side_thread.hpp>

#include <support/error.hpp>

namespace {

using danling::formats::parallel_for;
using danling_test::error_of;

TEST_CASE("parallel_for: does every item once, whatever the number of threads", "[formats]") {
  for (const std::size_t threads : {0, 1, 2, 3, 100}) {
    std::vector<std::atomic<int>> done(1000);
    parallel_for(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    for (const auto& count : done) {
      CHECK(count == 1);
    }
  }
  parallel_for(0, 4, [](std::size_t) { FAIL("nothing to do"); });
}

TEST_CASE("parallel_for: throws what the first failing item threw", "[formats]") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    CHECK(error_of<std::runtime_error>([] {
            parallel_for(1000, 4, [](std::size_t i) {
              if (i >= 40 && i % 10 == 0) {
                throw std::runtime_error(std::to_string(i));
              }
            });
          }) == "40");
  }
}

TEST_CASE("SideThread: does one work after another, and gives its errors to the one who waits", "[formats]") {
  danling::formats::SideThread side;
  side.wait();
  int sum = 0;
  for (int i = 1; i <= 1000; ++i) {
    side.start([&sum, i] { sum += i; });
    side.wait();
    REQUIRE(sum == i * (i + 1) / 2);
  }
  for (int i = 0; i < 100; ++i) {
    CHECK(error_of<std::runtime_error>([&] {
            side.start([] { throw std::runtime_error("from the work"); });
            side.wait();
          }) == "from the work");
  }
  side.start([&sum] { sum = 0; });
  side.wait();
  CHECK(sum == 0);
}

}  // namespace
