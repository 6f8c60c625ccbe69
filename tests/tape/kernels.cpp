// The loops of each instruction set that this CPU has, against LibTorch's operators and plain formulas.
#include <tape/kernels/kernels.hpp>

#include <cmath>
#include <limits>
#include <random>

#include <tape/own.hpp>
#include <tape/steps.hpp>

namespace {
using namespace tape_test;
using tape::Kernels;
using tape::own::floats;

struct NamedKernels {
  const char* name;
  const Kernels& kernels;
};

std::vector<NamedKernels> runnable() {
  std::vector<NamedKernels> out{{"baseline", tape::baseline_kernels}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    out.push_back({"avx2", tape::avx2_kernels});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    out.push_back({"avx512", tape::avx512_kernels});
  }
#endif
  return out;
}

template <class Test>
void for_each_set(const Test& test) {
  for (const auto& [name, kernels] : runnable()) {
    CAPTURE(name);
    test(kernels);
  }
}

constexpr std::int64_t sizes[] = {0, 1, 7, 8, 15, 16, 17, 1000, 1023};
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float tiny = std::numeric_limits<float>::denorm_min();

/// Normal numbers, every second one special. Only one nan: the compiler decides which of two a product returns.
at::Tensor specials(std::int64_t n, std::uint64_t seed, bool with_nan = true) {
  at::Tensor out = random({n}, seed) * 3;
  const std::vector<float> special = {
      inf, -inf, 0.0F, -0.0F, tiny, -tiny, 1e-39F, 3e38F, -3e38F, 1.0F, with_nan ? nan : 2.0F};
  for (std::int64_t i = 0; i < n; i += 2) {
    floats(out)[i] = special[(static_cast<std::size_t>(i) / 2 + seed) % special.size()];
  }
  return out;
}

TEST_CASE("tape kernels: functions of each number have the bits of LibTorch's", "[tape]") {
  for_each_set([](const Kernels& kernels) {
    for (const std::int64_t n : sizes) {
      CAPTURE(n);
      for (const std::uint64_t seed : {1, 2, 3}) {
        const at::Tensor a = specials(n, seed);
        const at::Tensor b = specials(n, seed + 4, /*with_nan=*/false);
        at::Tensor out = torch::full({n + 1}, 42.0F);  // one more, to see that it stays
        const at::Tensor result = out.slice(0, 0, n);
        const auto is = [&](const at::Tensor& expected) {
          return tape::same_bits(result, expected) && floats(out)[n] == 42.0F;
        };
        kernels.relu(floats(a), floats(out), n);
        CHECK(is(at::relu(a)));
        for (const float threshold : {0.0F, 1.0F, -inf, inf}) {
          kernels.threshold_backward(floats(b), floats(a), threshold, floats(out), n);
          CHECK(is(at::threshold_backward(b, a, threshold)));
          kernels.threshold_backward(floats(a), floats(b), threshold, floats(out), n);
          CHECK(is(at::threshold_backward(a, b, threshold)));
        }
        kernels.add(floats(a), floats(b), floats(out), n);
        CHECK(is(at::add(a, b)));
        kernels.mul(floats(a), floats(b), floats(out), n);
        CHECK(is(at::mul(a, b)));
        for (const float number : {0.1F, -3.0F, 0.0F, inf, tiny, 1e30F}) {
          kernels.mul_number(floats(a), number, floats(out), n);
          CHECK(is(at::mul(a, number)));
          kernels.div_number(floats(a), number, floats(out), n);
          CHECK(is(at::div(a, number)));
        }
        at::Tensor in_place = a.clone();
        kernels.add(floats(in_place), floats(b), floats(in_place), n);
        CHECK(tape::same_bits(in_place, at::add(a, b)));
        in_place = a.clone();
        kernels.relu(floats(in_place), floats(in_place), n);
        CHECK(tape::same_bits(in_place, at::relu(a)));
      }
    }
  });
}

TEST_CASE("tape kernels: a row that is added to each row", "[tape]") {
  for_each_set([](const Kernels& kernels) {
    for (const std::int64_t n : sizes) {
      for (const std::int64_t rows : {0, 1, 3}) {
        CAPTURE(n, rows);
        const at::Tensor a = specials(rows * n, 1).view({rows, n});
        const at::Tensor row = specials(n, 2, /*with_nan=*/false);
        const at::Tensor out = torch::empty({rows, n});
        kernels.add_rows(floats(a), floats(row), floats(out), rows, n);
        CHECK(tape::same_bits(out, a + row));
      }
    }
  });
}

TEST_CASE("tape kernels: pooling chooses the values and places of LibTorch's", "[tape]") {
  struct Geometry {
    std::vector<std::int64_t> in, size, step, border;
  };
  const std::vector<Geometry> all = {
      {{2, 3, 8, 8}, {2, 2}, {2, 2}, {0, 0}},    {{1, 2, 9, 8}, {2, 2}, {2, 2}, {0, 0}},
      {{1, 2, 8, 9}, {2, 2}, {2, 2}, {0, 0}},    {{1, 1, 7, 5}, {3, 3}, {2, 2}, {1, 1}},
      {{2, 1, 5, 11}, {3, 2}, {1, 2}, {1, 0}},   {{1, 1, 4, 4}, {4, 4}, {4, 4}, {2, 2}},
      {{1, 2, 6, 2100}, {2, 2}, {2, 2}, {0, 0}}, {{1, 2, 40, 1024}, {2, 2}, {2, 2}, {0, 0}},
      {{3, 1, 2, 2}, {2, 2}, {2, 2}, {0, 0}},    {{1, 1, 1, 6}, {1, 3}, {1, 1}, {0, 1}},
      {{1, 1, 66, 62}, {2, 2}, {2, 2}, {0, 0}},  {{1, 2, 6, 6}, {2, 2}, {3, 3}, {1, 1}}};
  for_each_set([&](const Kernels& kernels) {
    for (std::size_t g = 0; g < all.size(); ++g) {
      CAPTURE(g);
      const auto& [in, size, step, border] = all[g];
      for (int kind = 0; kind < 5; ++kind) {
        CAPTURE(kind);
        at::Tensor x = random(in, g);
        const at::Tensor chance = torch::rand(in, seeded(g + 50));
        x = kind == 1   ? torch::where(chance < 0.3, nan, x)   // also several in a window
            : kind == 2 ? (x * 2).round().to(at::kFloat)       // ties, zeros of both signs
            : kind == 3 ? torch::where(chance < 0.8, -inf, x)  // windows of -inf
            : kind == 4 ? torch::where(chance < 0.5, -inf, torch::where(chance < 0.8, nan, inf))
                        : x;
        x = x.to(at::kFloat).contiguous();
        const auto [expected, expected_places] = at::max_pool2d_with_indices(x, size, step, border);
        const at::Tensor out = torch::empty_like(expected);
        const at::Tensor places = torch::empty_like(expected_places);
        kernels.max_pool({.planes = in[0] * in[1],
                          .in_rows = in[2],
                          .in_columns = in[3],
                          .out_rows = expected.size(2),
                          .out_columns = expected.size(3),
                          .rows = size[0],
                          .columns = size[1],
                          .row_step = step[0],
                          .column_step = step[1],
                          .row_border = border[0],
                          .column_border = border[1]},
                         floats(x), floats(out), places.data_ptr<std::int64_t>());
        CHECK(tape::same_bits(out, expected));
        CHECK(tape::same_bits(places, expected_places));
      }
    }
  });
}

TEST_CASE("tape kernels: words are those of the Mersenne Twister", "[tape]") {
  for_each_set([](const Kernels& kernels) {
    for (const std::uint32_t seed : {0U, 1U, 5489U, 4294967295U}) {
      std::mt19937 expected(seed);
      std::uint32_t state[624];
      state[0] = seed;
      for (std::uint32_t i = 1; i < 624; ++i) {  // as the authors initialise it
        state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
      }
      std::size_t different = 0;
      for (int time = 0; time < 5; ++time) {
        kernels.twist(state);
        std::uint32_t words[624];
        kernels.temper(state, words, 300);
        kernels.temper(state + 300, words + 300, 324);
        for (const std::uint32_t word : words) {
          different += word != expected() ? 1 : 0;
        }
      }
      CHECK(different == 0);
    }
  });
}

TEST_CASE("tape kernels: numbers below a limit, of 53 bits from two words", "[tape]") {
  std::mt19937 random_words(3);
  std::vector<std::uint32_t> words(2 * 1023);
  for (std::uint32_t& word : words) {
    word = static_cast<std::uint32_t>(random_words());
  }
  constexpr std::uint64_t all = std::uint64_t{1} << 53;
  const std::uint64_t first = ((std::uint64_t{words[0]} << 32) | words[1]) % all;
  for_each_set([&](const Kernels& kernels) {
    for (const std::int64_t n : sizes) {
      for (const std::uint64_t limit :
           {std::uint64_t{0}, std::uint64_t{1}, all / 10, all / 2, first, first + 1, all - 1, all}) {
        CAPTURE(n, limit);
        std::vector<float> out(static_cast<std::size_t>(n) + 1, 42.0F);
        kernels.below(words.data(), limit, out.data(), n);
        std::size_t wrong = out.back() == 42.0F ? 0 : 1;
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          const std::uint64_t number = ((std::uint64_t{words[2 * i]} << 32) | words[2 * i + 1]) % all;
          wrong += out[i] == (number < limit ? 1.0F : 0.0F) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("tape kernels: exponentials and logarithms where LibTorch has vectors of them", "[tape]") {
  for_each_set([](const Kernels& kernels) {
    CHECK((kernels.exp == nullptr) == (kernels.log == nullptr));
    CHECK((kernels.exp == nullptr) == (kernels.width == 1));
    CHECK((kernels.exp == nullptr) == (kernels.has_math == nullptr));
    if (kernels.exp == nullptr) {
      return;
    }
    REQUIRE(kernels.has_math());  // LibTorch exports its functions in all versions that we know
    for (const std::int64_t n : sizes) {
      CAPTURE(n);
      const at::Tensor a = specials(n, 3);
      at::Tensor out = torch::full({n + 1}, 42.0F);
      for (const bool logarithm : {false, true}) {
        (logarithm ? kernels.log : kernels.exp)(floats(a), floats(out), n);
        CHECK(floats(out)[n] == 42.0F);
        // Within one unit in the last place of the true value.
        const at::Tensor exact = logarithm ? a.to(at::kDouble).log() : a.to(at::kDouble).exp();
        CHECK(torch::allclose(out.slice(0, 0, n), exact.to(at::kFloat), 1.3e-7, 1e-44, /*equal_nan=*/true));
      }
    }
  });
}

TEST_CASE("tape kernels: those of the instruction set that LibTorch runs", "[tape]") {
  const std::string cpu = at::get_cpu_capability();
  const Kernels& chosen = tape::kernels();
  CHECK(&chosen == (cpu == "AVX512" ? &tape::avx512_kernels
                    : cpu == "AVX2" ? &tape::avx2_kernels
                                    : &tape::baseline_kernels));
}

}  // namespace
