// Dropout masks: draws the numbers of LibTorch's generator in blocks.
#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>

#include <tape/kernels/kernels.hpp>
#include <tape/own.hpp>

namespace danling::inline v0::tape {
namespace own {
namespace {

constexpr std::int64_t words = at::MERSENNE_STATE_N;

/// Words of a Mersenne Twister, generated one state (624 words) at a time.
class Words {
 public:
  explicit Words(at::mt19937_data_pod& state) : state_(state) {}
  /// Writes the next `n` words.
  void take(std::uint32_t* out, std::int64_t n) {
    while (n > 0) {
      // LibTorch checks the number of remaining words before it draws one.
      if (state_.left_ <= 1) {
        kernels().twist(state_.state_.data());
        state_.left_ = static_cast<int>(words) + 1;
        state_.next_ = 0;
      }
      const std::int64_t now = std::min<std::int64_t>(n, state_.left_ - 1);
      kernels().temper(state_.state_.data() + state_.next_, out, now);
      state_.left_ -= static_cast<int>(now);
      state_.next_ += static_cast<std::uint32_t>(now);
      out += now;
      n -= now;
    }
  }

 private:
  at::mt19937_data_pod& state_;
};

void draw(at::CPUGeneratorImpl& generator, double p, float* out, std::int64_t n) {
  const std::lock_guard lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod state = engine.data();
  Words source(state);
  // A uniform number is k / 2^53 from two words: k / 2^53 < p if and only if k < p 2^53.
  const auto limit = static_cast<std::uint64_t>(std::ceil(std::ldexp(p, 53)));
  std::array<std::uint32_t, 1024> block;
  constexpr auto most = static_cast<std::int64_t>(block.size() / 2);
  for (std::int64_t i = 0; i < n; i += most) {
    const std::int64_t now = std::min(most, n - i);
    source.take(block.data(), 2 * now);
    kernels().below(block.data(), limit, out + i, now);
  }
  engine.set_data(state);
  generator.set_engine(engine);
}

/// Returns true if LibTorch draws in the same order: it does not where it uses MKL's generator, on Intel CPUs.
bool draws_alike() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const std::int64_t n : {1, 7, 1000, 5000}) {
    for (const double p : {0.25, 0.9}) {
      auto theirs = at::detail::createCPUGenerator(static_cast<std::uint64_t>(n));
      auto ours = at::detail::createCPUGenerator(static_cast<std::uint64_t>(n));
      at::Tensor a = at::empty({n});
      at::Tensor b = at::empty({n});
      for (int time = 0; time < 3; ++time) {
        a.bernoulli_(p, theirs);
        draw(*ours.get<at::CPUGeneratorImpl>(), p, floats(b), n);
        if (!same_bits(a, b) || !same_bits(theirs.get_state(), ours.get_state())) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

Kernel bernoulli(const BoundCall& b) {
  static const bool alike = draws_alike();
  const at::Tensor& out = b.argument(0);
  const double p = b.number(1).toDouble();
  if (!alike || !out.is_cpu() || out.scalar_type() != at::kFloat || !out.is_contiguous() || !(p >= 0 && p <= 1)) {
    return {};
  }
  const at::Generator generator =
      b.number(2).isGenerator() ? b.number(2).toGenerator() : at::detail::getDefaultCPUGenerator();
  return [out, p, generator, n = out.numel()] { draw(*generator.get<at::CPUGeneratorImpl>(), p, floats(out), n); };
}

}  // namespace own
}  // namespace danling::inline v0::tape
