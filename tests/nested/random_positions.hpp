// Operators of random programs along one dimension.
#pragma once

#include <nested/random_calls.hpp>

namespace random_programs {

// ---- Along one dimension

inline void scan(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim), kind = p.random.below(8);
  if (kind >= 3 && (!p.floating() || kind >= 5) && p.x.scalar_type() == torch::kBool) {
    return;
  }
  static const char* const names[] = {"cumsum",      "cumprod", "flip",         "softmax",
                                      "log_softmax", "cummax",  "logcumsumexp", "cummin"};
  if ((kind == 5 || kind == 7) && p.batch() > 0 && p.has_ties()) {
    return;
  }
  const auto run = [=](const Tensor& t, std::int64_t along) {
    switch (kind) {
      case 0:
        return t.cumsum(along);
      case 1:
        return t.cumprod(along);
      case 2:
        return t.flip(along);
      case 3:
        return t.softmax(along);
      case 4:
        return t.log_softmax(along);
      case 5:
        return std::get<0>(t.cummax(along));
      case 6:
        return t.logcumsumexp(along);
      default:
        return std::get<1>(t.cummin(along));
    }
  };
  p.apply(
      call(names[kind], {dim}), [=](const Tensor& t) { return run(t, outer); },
      [=](const Tensor& t, std::int64_t) { return run(t, dim); });
}

inline void order(Program& p) {
  if (p.batch() > 0 && p.has_ties()) {
    return;
  }
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim), kind = p.random.below(6);
  const bool descending = p.random.chance(50);
  const std::int64_t k = p.random.below(3);
  if (p.x.scalar_type() == torch::kBool) {
    return;
  }
  static const char* const names[] = {"sort", "sort indices", "argsort", "topk", "topk indices", "kthvalue"};
  const auto run = [=](const Tensor& t, std::int64_t along) {
    switch (kind) {
      case 0:
        return std::get<0>(t.sort(along, descending));
      case 1:
        return std::get<1>(t.sort(/*stable=*/true, along, descending));
      case 2:
        return t.argsort(along, descending);
      case 3:
        return std::get<0>(t.topk(k, along, descending));
      case 4:
        return std::get<1>(t.topk(k, along, descending));
      default:
        return std::get<0>(t.kthvalue(1, along, true));
    }
  };
  p.apply(
      call(names[kind], {dim, descending, k}), [=](const Tensor& t) { return run(t, outer); },
      [=](const Tensor& t, std::int64_t) { return run(t, dim); }, p.batch_dim());
}

inline void move(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim), kind = p.random.below(8), n = p.random.between(-2, 3);
  const std::int64_t other = p.any_dim(), outer_other = p.outer(other);
  static const char* const names[] = {"roll",   "diff",         "slice",    "slice step",
                                      "narrow", "index_select", "roll two", "rot90"};
  const auto run = [=](const Tensor& t, std::int64_t along, std::int64_t second) {
    switch (kind) {
      case 0:
        return t.roll(n, along);
      case 1:
        return t.diff(1, along);
      case 2:
        return t.slice(along, n, n + 2);
      case 3:
        return t.slice(along, n < 0 ? 0 : n, std::nullopt, 2);
      case 4:
        return t.narrow(along, std::max<std::int64_t>(n, 0), 1);
      case 5:
        if (t.size(along) == 0 && !NestedTensor::is_nested(t)) {  // LibTorch refuses these by rank and place
          return t.index_select(0, torch::tensor({9}));
        }
        return t.index_select(along, torch::tensor({std::int64_t{0}, std::max<std::int64_t>(n, 0)}));
      case 6:
        return t.roll({n, 1}, {along, second});
      default:
        return t.rot90(n, {along, second});
    }
  };
  p.apply(
      call(names[kind], {dim, n, other}), [=](const Tensor& t) { return run(t, outer, outer_other); },
      [=](const Tensor& t, std::int64_t) { return run(t, dim, other); });
}

inline void select(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim), index = p.random.between(-1, 1);
  if (p.batch() == 0) {
    return;
  }
  p.apply(
      call("select", {dim, index}), [=](const Tensor& t) { return t.select(outer, index); },
      [=](const Tensor& t, std::int64_t) { return t.select(dim, index); }, batch_after(p, dim));
}

inline void repeat(Program& p) {
  if (p.x.numel() > 500 || p.batch() == 0) {
    return;
  }
  const std::int64_t dim = p.any_dim(), outer = p.outer(dim), kind = p.random.below(2);
  const std::int64_t count = p.random.between(0, 2);
  p.apply(
      call(kind == 0 ? "repeat" : "repeat_interleave", {dim, count}),
      [=](const Tensor& t) {
        Dims times(static_cast<std::size_t>(t.dim()), 1);
        times[static_cast<std::size_t>(outer)] = count;
        return kind == 0 ? t.repeat(times) : t.repeat_interleave(count, outer);
      },
      [=](const Tensor& t, std::int64_t) {
        Dims times(static_cast<std::size_t>(t.dim()), 1);
        times[static_cast<std::size_t>(dim)] = count;
        return kind == 0 ? t.repeat(times) : t.repeat_interleave(count, dim);
      });
}

inline void pad(Program& p) {
  if (p.batch() == 0) {
    return;
  }
  const std::int64_t last = p.random.between(-1, 2), before = p.random.between(-1, 2);
  const bool two = p.rank() > 1 && p.random.chance(40) && (p.batch_first() || p.rank() > 2);
  Dims widths = {before, last};
  if (two) {
    widths.insert(widths.end(), {1, 0});
  }
  if (!p.batch_first() && p.rank() == 1) {
    return;
  }
  const int mode = static_cast<int>(p.random.below(5));
  if (mode < 2 || !p.batch_first() || p.rank() != 2 || p.x.scalar_type() == torch::kBool) {
    both(p, concat("pad", text_of(widths)), [=](const Tensor& t) { return torch::constant_pad_nd(t, widths, 1); });
    return;
  }
  widths = {std::max<std::int64_t>(before, 0), std::max<std::int64_t>(last, 0)};
  const char* const names[] = {"", "", "reflect", "replicate", "circular"};
  const std::string name = names[mode];
  if (p.any_empty()) {  // LibTorch refuses these
    return;
  }
  both(p, concat("pad ", name, text_of(widths)), [=](const Tensor& t) { return at::pad(t, widths, name); });
}

inline void split(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim), kind = p.random.below(4), n = p.random.between(1, 3);
  const auto run = [=](const Tensor& t, std::int64_t along) {
    const Tensors parts = kind == 0   ? t.split(n, along)
                          : kind == 1 ? t.chunk(n, along)
                          : kind == 2 ? t.tensor_split(n, along)
                                      : t.tensor_split(at::IntArrayRef({1, 2}), along);
    return parts[kind == 0 ? 0 : parts.size() - 1];
  };
  if (p.batch() == 0) {
    return;
  }
  p.apply(
      call(concat("split ", kind, " "), {dim, n}), [=](const Tensor& t) { return run(t, outer); },
      [=](const Tensor& t, std::int64_t) { return run(t, dim); });
}

inline void join(Program& p) {
  if (p.batch() == 0 || p.ragged().empty() || p.x.numel() > 500) {
    return;
  }
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim);
  auto shapes = p.shapes();
  const std::int64_t extra = p.random.between(0, 2);
  for (Dims& one : shapes) {
    one[static_cast<std::size_t>(dim)] = p.is_ragged(dim) ? p.random.between(0, 3) : extra;
  }
  const auto [own, other] = p.nested_leaf(shapes);
  const bool turned = p.random.chance(50);
  p.apply(
      call("cat", {dim}),
      [=, own = own](const Tensor& t) {
        return turned ? torch::cat({own, t, own}, outer) : torch::cat({t, own}, outer);
      },
      [=, other = other](const Tensor& t, std::int64_t at) {
        const Tensor& part = other[static_cast<std::size_t>(at)];
        return turned ? torch::cat({part, t, part}, dim) : torch::cat({t, part}, dim);
      });
}

inline void stack(Program& p) {
  const std::int64_t dim = p.random.below(p.rank() + 1);
  if (p.batch() == 0 || p.rank() > 3 || (!p.batch_first() && dim == 0)) {
    return;
  }
  p.apply(
      call("stack", {dim}), [=](const Tensor& t) { return torch::stack({t, t + 1}, dim + 1); },
      [=](const Tensor& t, std::int64_t) { return torch::stack({t, t + 1}, dim); });
}

/// Selects elements of the batch, or doubles it.
inline void elements(Program& p) {
  if (p.batch() == 0) {
    return;
  }
  const std::int64_t dim = p.batch_dim(), kind = p.random.below(4);
  std::vector<std::int64_t> chosen;
  for (std::int64_t count = p.random.between(1, 4); count > 0; --count) {
    chosen.push_back(p.random.below(p.batch()));
  }
  Tensors before = p.each;
  const Tensor x = p.x;
  Tensor got;
  if (kind == 0) {
    got = x.index_select(dim, torch::tensor(chosen));
  } else if (kind == 1) {
    got = dim == 0 ? x.index({torch::tensor(chosen)}) : x.index({Slice(), torch::tensor(chosen)});
  } else if (kind == 2) {
    chosen.clear();
    for (std::int64_t at = 0; at < p.batch(); at += 2) {
      chosen.push_back(at);
    }
    got = x.slice(dim, 0, std::nullopt, 2);
  } else {
    if (p.batch() > 6) {
      return;
    }
    chosen.clear();
    for (std::int64_t at = 0; at < 2 * p.batch(); ++at) {
      chosen.push_back(at % p.batch());
    }
    got = torch::cat({x, x}, dim);
  }
  p.each.clear();
  for (const std::int64_t at : chosen) {
    p.each.push_back(before[static_cast<std::size_t>(at)]);
  }
  p.x = got;
  p.apply(
      concat("elements ", kind, text_of(Dims(chosen.begin(), chosen.end()))), [](const Tensor& t) { return t.clone(); },
      [](const Tensor& t, std::int64_t) { return t.clone(); });
}

inline void pick(Program& p) {
  if (p.batch() == 0) {
    return;
  }
  if (p.random.chance(50)) {
    both(p, "masked", [](const Tensor& t) { return t.index({t > 0}); });
    return;
  }
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim);
  const auto run = [](const Tensor& t, std::int64_t along) {
    return t.gather(along, torch::ones_like(t, torch::kLong).cumsum(along) - 1);
  };
  p.apply(
      call("gather", {dim}), [=](const Tensor& t) { return run(t, outer); },
      [=](const Tensor& t, std::int64_t) { return run(t, dim); });
}

}  // namespace random_programs
