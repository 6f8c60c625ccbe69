// Operators of random programs on each value, and in place.
#pragma once

#include <nested/random_calls.hpp>

namespace random_programs {

// ---- Each value by itself

inline void unary(Program& p) {
  using Function = Tensor (*)(const Tensor&);
  static const std::vector<std::pair<const char*, Function>> floats = {
      {"sin", [](const Tensor& t) { return t.sin(); }},
      {"tanh", [](const Tensor& t) { return t.tanh(); }},
      {"sigmoid", [](const Tensor& t) { return t.sigmoid(); }},
      {"square", [](const Tensor& t) { return t.tanh().square(); }},
      {"gelu", [](const Tensor& t) { return torch::gelu(t); }},
      {"softplus", [](const Tensor& t) { return torch::softplus(t); }},
      {"silu", [](const Tensor& t) { return torch::silu(t); }},
      {"exp", [](const Tensor& t) { return t.clamp(-3, 3).exp(); }},
      {"rsqrt", [](const Tensor& t) { return t.square().add(1).rsqrt(); }},
      {"elu", [](const Tensor& t) { return torch::elu(t); }},
      {"hardtanh", [](const Tensor& t) { return torch::hardtanh(t); }},
      {"leaky_relu", [](const Tensor& t) { return torch::leaky_relu(t, 0.2); }},
      {"log_sigmoid", [](const Tensor& t) { return torch::log_sigmoid(t); }},
      {"logit", [](const Tensor& t) { return t.sigmoid().logit(0.01); }},
      {"nan_to_num", [](const Tensor& t) { return t.nan_to_num(); }},
      {"log1p", [](const Tensor& t) { return t.abs().log1p(); }},
      {"dropout", [](const Tensor& t) { return torch::dropout(t, 0, true); }},
      {"dropout off", [](const Tensor& t) { return torch::dropout(t, 0.5, false); }},
      {"reciprocal", [](const Tensor& t) { return t.abs().add(1).reciprocal(); }},
      {"isnan", [](const Tensor& t) { return t.isnan(); }},
      {"to float", [](const Tensor& t) { return t.to(torch::kFloat); }},
  };
  static const std::vector<std::pair<const char*, Function>> all = {
      {"neg", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t.logical_not() : t.neg(); }},
      {"abs", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t : t.abs(); }},
      {"relu", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t : t.relu(); }},
      {"clone", [](const Tensor& t) { return t.clone(); }},
      {"contiguous", [](const Tensor& t) { return t.contiguous(); }},
      {"to double", [](const Tensor& t) { return t.to(torch::kDouble); }},
      {"eq 1", [](const Tensor& t) { return t.eq(1); }},
      {"gt 0", [](const Tensor& t) { return t > 0; }},
      {"sign", [](const Tensor& t) { return t.sign(); }},
      {"zeros_like", [](const Tensor& t) { return torch::zeros_like(t); }},
      {"full_like", [](const Tensor& t) { return torch::full_like(t, 1); }},
      {"add 1", [](const Tensor& t) { return t.add(1); }},
      {"div 2", [](const Tensor& t) { return t / 2; }},
      {"rsub", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t : 1 - t; }},
      {"clamp", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t : t.clamp(-1, 2); }},
      {"masked_fill self", [](const Tensor& t) { return t.masked_fill(t > 1, 0); }},
      {"where self", [](const Tensor& t) { return torch::where(t > 0, t, torch::zeros_like(t)); }},
      {"remainder", [](const Tensor& t) { return t.scalar_type() == torch::kBool ? t : t.remainder(3); }},
  };
  const auto& list = p.floating() && p.random.chance(70) ? floats : all;
  const auto& chosen = list[static_cast<std::size_t>(p.random.below(std::ssize(list)))];
  both(p, chosen.first, chosen.second);
}

inline Tensor combine(int kind, const Tensor& a, const Tensor& b) {
  switch (kind) {
    case 0:
      return a + b;
    case 1:
      return a * b;
    case 2:
      return torch::maximum(a, b);
    case 3:
      return torch::where(b > 0, a, b);
    case 4:
      return a.le(b);
    case 5:
      return torch::addcmul(a, b, b);
    case 6:
      return a.masked_fill(b > 0, 0);
    case 7:
      return a.is_floating_point() ? torch::lerp(a, b.expand_as(a), 0.3) : a + b;
    default:
      return a.scalar_type() == torch::kBool ? a.logical_xor(b) : a - b;
  }
}
const char* const combined[] = {"add", "mul", "maximum", "where", "le", "addcmul", "masked_fill", "lerp", "sub"};

inline void with_plain(Program& p) {
  const int kind = static_cast<int>(p.random.below(9));
  const auto [own, other] = p.leaf(p.plain_sizes());
  const bool turned = p.random.chance(30) && kind != 7;
  p.apply(
      concat(combined[kind], " plain ", text_of(own.sizes().vec()), turned ? " turned" : ""),
      [=, own = own](const Tensor& t) { return turned ? combine(kind, own, t) : combine(kind, t, own); },
      [&, kind, turned, other = other](const Tensor& t, std::int64_t at) {
        const Tensor part = at < 0 ? t.narrow(0, 0, t.size(0)) : p.part_for(other, t, at);
        return turned ? combine(kind, part, t) : combine(kind, t, part);
      });
}

inline void with_nested(Program& p) {
  if (p.batch() == 0 || p.ragged().empty()) {
    return;
  }
  const int kind = static_cast<int>(p.random.below(9));
  auto shapes = p.shapes();
  const bool ones = p.random.chance(30);
  const std::int64_t dim = p.any_dim();
  for (Dims& one : shapes) {
    one[static_cast<std::size_t>(dim)] = ones ? 1 : one[static_cast<std::size_t>(dim)];
  }
  const bool turned = p.random.chance(30) && kind != 7;
  const auto [own, other] = p.nested_leaf(shapes);
  p.apply(
      concat(combined[kind], " nested", ones ? " of size 1 along " + std::to_string(dim) : "", turned ? " turned" : ""),
      [=, own = own](const Tensor& t) { return turned ? combine(kind, own, t) : combine(kind, t, own); },
      [=, other = other](const Tensor& t, std::int64_t at) {
        const Tensor& part = other[static_cast<std::size_t>(at)];
        return turned ? combine(kind, part, t) : combine(kind, t, part);
      });
}

inline void with_itself(Program& p) {
  const int kind = static_cast<int>(p.random.below(9));
  both(p, concat(combined[kind], " itself"), [=](const Tensor& t) { return combine(kind, t, t.clone()); });
}

inline void in_place(Program& p) {
  const std::int64_t kind = p.random.below(13);
  const bool booleans = p.x.scalar_type() == torch::kBool;
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim);
  const auto change = [=](const Tensor& t, std::int64_t along) {
    Tensor y =
        t.clone(kind > 8 && !NestedTensor::is_nested(t) ? at::MemoryFormat::Contiguous : at::MemoryFormat::Preserve);
    switch (kind) {
      case 0:
        return y.add_(t);
      case 1:
        return booleans ? y.logical_not_() : y.mul_(2);
      case 2:
        return y.masked_fill_(t > 0, 1);
      case 3:
        return y.zero_();
      case 4:
        return y.copy_(t * 2);
      case 5:
        y.slice(along, 0, 2).fill_(3);
        return y;
      case 6:
        y.slice(along, 1).mul_(booleans ? 0 : 2);
        return y;
      case 7:
        y.index_put_({t > 0}, torch::tensor(2).to(t.scalar_type()));
        return y;
      case 8:
        y.mT().masked_fill_(t.mT() > 0, 1);
        return y;
      case 9:
        y.flatten(-2, -1).masked_fill_(t.flatten(-2, -1) > 0, 1);
        return y;
      case 10:
        y.mT().slice(along, 1).fill_(1);
        return y;
      case 11:
        y.index_select(along, torch::tensor({0})).fill_(1);
        return y;
      default:
        torch::constant_pad_nd(y.repeat_interleave(1, along), {0, 0}, 1).fill_(1);
        return y;
    }
  };
  if (kind >= 8 && kind < 11 && p.rank() < 2) {
    return;
  }
  if (kind == 11 && p.any_empty()) {
    return;
  }
  p.apply(
      call(concat("in place ", kind), {dim}), [=](const Tensor& t) { return change(t, outer); },
      [=](const Tensor& t, std::int64_t) { return change(t, dim); });
}

}  // namespace random_programs
