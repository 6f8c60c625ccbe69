#include <danling/state/state.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

namespace {

using danling::State;

TEST_CASE("identical: compares the values that conjugated and negated views stand for", "[state]") {
  const at::Tensor number = at::complex(at::tensor({1.0F, 3.0F}), at::tensor({2.0F, -4.0F}));
  CHECK(danling::bitwise_equal(State(number.conj()), State(number.conj().resolve_conj())));
  CHECK(danling::first_difference(State(number.conj()), State(number)) ==
        ": ComplexFloat [2] that differ first at element 0");
  const at::Tensor minus = at::_neg_view(number);
  CHECK(danling::bitwise_equal(State(minus), State(minus.resolve_neg())));
  CHECK_FALSE(danling::bitwise_equal(State(minus), State(number)));
}

}  // namespace
