// The places of results in an arena, and its memory.
#include <algorithm>
#include <random>

#include <tape/steps.hpp>

namespace {
using namespace tape_test;
using tape::Lifetime;
using tape::Places;

bool live_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Checks the definition: results that live together share no byte; all are aligned and inside the arena.
void check_places(const std::vector<Lifetime>& lifetimes) {
  const Places places = tape::place(lifetimes);
  REQUIRE(places.offsets.size() == lifetimes.size());
  std::size_t overlaps = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    CHECK(places.offsets[i] % 64 == 0);
    end = std::max(end, places.offsets[i] + aligned(lifetimes[i].bytes));
    for (std::size_t k = 0; k < i; ++k) {
      const bool apart = places.offsets[i] + lifetimes[i].bytes <= places.offsets[k] ||
                         places.offsets[k] + lifetimes[k].bytes <= places.offsets[i];
      overlaps += live_together(lifetimes[i], lifetimes[k]) && !apart ? 1 : 0;
    }
  }
  CHECK(overlaps == 0);
  CHECK(places.bytes == end);
  // At least the bytes that live at one time, at most all bytes.
  std::size_t sum = 0;
  std::size_t most = 0;
  for (const Lifetime& a : lifetimes) {
    sum += aligned(a.bytes);
    std::size_t now = 0;
    for (const Lifetime& b : lifetimes) {
      now += b.first <= a.first && a.first <= b.last ? b.bytes : 0;
    }
    most = std::max(most, now);
  }
  CHECK(places.bytes >= most);
  CHECK(places.bytes <= sum);
}

TEST_CASE("place: results that live together do not overlap", "[tape]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<Lifetime> lifetimes(1 + random() % 80);
    for (Lifetime& one : lifetimes) {
      one.bytes = random() % 4 == 0 ? random() % 3 : random() % 5000;
      one.first = random() % 50;
      one.last = one.first + (random() % 5 == 0 ? random() % 50 : random() % 4);
    }
    check_places(lifetimes);
  }
}

TEST_CASE("place: a chain needs the memory of two neighbours, nested results that of all", "[tape]") {
  std::vector<Lifetime> chain;
  for (std::size_t i = 0; i < 20; ++i) {
    chain.push_back({.bytes = 640, .first = i, .last = i + 1});
  }
  CHECK(tape::place(chain).bytes == 2 * 640);
  chain[7].bytes = 6400;
  CHECK(tape::place(chain).bytes == 6400 + 640);
  check_places(chain);
  std::vector<Lifetime> nested;
  for (std::size_t i = 0; i < 20; ++i) {
    nested.push_back({.bytes = 64, .first = i, .last = 40 - i});
  }
  CHECK(tape::place(nested).bytes == 20 * 64);
  check_places(nested);
}

TEST_CASE("place: sizes are rounded up to 64 bytes; nothing needs nothing", "[tape]") {
  CHECK(tape::place({}).bytes == 0);
  const Places places = tape::place({{.bytes = 1, .first = 0, .last = 2},
                                     {.bytes = 65, .first = 1, .last = 3},
                                     {.bytes = 0, .first = 0, .last = 3},
                                     {.bytes = 64, .first = 2, .last = 2}});
  CHECK(places.offsets == std::vector<std::size_t>{192, 0, 0, 128});
  CHECK(places.bytes == 256);
  CHECK(tape::place({{.bytes = 0, .first = 0, .last = 0}}).bytes == 0);
}

TEST_CASE("Arena: has as many bytes as were asked for, until it is released", "[tape]") {
  tape::Arena arena;
  CHECK(arena.bytes() == 0);
  CHECK(arena.reserve(0) == nullptr);
  void* const first = arena.reserve(1000);
  REQUIRE(first != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  CHECK(arena.bytes() == 1000);
  std::fill_n(static_cast<char*>(first), 1000, 'x');
  CHECK(arena.reserve(10) == first);
  CHECK(arena.reserve(1000) == first);
  CHECK(static_cast<char*>(first)[999] == 'x');
  std::fill_n(static_cast<char*>(arena.reserve(5000)), 5000, 'y');
  CHECK(arena.bytes() == 5000);
  arena.release();
  CHECK(arena.bytes() == 0);
  std::fill_n(static_cast<char*>(arena.reserve(30)), 30, 'z');
  CHECK(arena.bytes() == 30);
}

}  // namespace
