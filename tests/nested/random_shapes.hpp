// Operators of random programs that change shapes.
#pragma once

#include <nested/random_calls.hpp>

namespace random_programs {

// ---- Shapes

inline void permute(Program& p) {
  std::vector<std::int64_t> order;
  for (std::int64_t dim = 0; dim < p.rank(); ++dim) {
    order.insert(order.begin() + p.random.below(dim + 1), dim);
  }
  Dims outer;
  for (const std::int64_t dim : order) {
    outer.push_back(p.outer(dim));
  }
  outer.insert(outer.begin() + (outer.empty() ? 0 : p.random.below(2)), p.batch_dim());
  p.apply(
      concat("permute", text_of(outer)), [=](const Tensor& t) { return t.permute(outer); },
      [=](const Tensor& t, std::int64_t) { return t.permute(order); });
}

inline void transpose(Program& p) {
  const std::int64_t a = p.any_dim(), b = p.any_dim(), outer_a = p.outer_any(a), outer_b = p.outer_any(b);
  if (p.random.chance(20)) {
    both(p, "mT", [](const Tensor& t) { return t.mT(); });
    return;
  }
  const bool move = p.random.chance(30);
  p.apply(
      call(move ? "movedim" : "transpose", {outer_a, outer_b}),
      [=](const Tensor& t) { return move ? t.movedim(outer_a, outer_b) : t.transpose(outer_a, outer_b); },
      [=](const Tensor& t, std::int64_t) { return move ? t.movedim(a, b) : t.transpose(a, b); });
}

inline void unsqueeze(Program& p) {
  if (p.rank() > 4) {
    return;
  }
  const std::int64_t dim = p.random.below(p.rank() + 1);
  if (!p.batch_first() && dim == 0) {
    return;
  }
  const std::int64_t outer = dim + 1;
  p.apply(
      call("unsqueeze", {outer}), [=](const Tensor& t) { return t.unsqueeze(outer); },
      [=](const Tensor& t, std::int64_t) { return t.unsqueeze(dim); });
}

inline void squeeze(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer_any(dim);
  if (p.batch() == 0 || (!p.all_single(dim) && p.batch() > 0)) {
    return;
  }
  p.apply(
      call("squeeze", {outer}), [=](const Tensor& t) { return t.squeeze(outer); },
      [=](const Tensor& t, std::int64_t) { return t.squeeze(dim); });
}

/// Merges or splits static dimensions; merges ragged ones with the next.
inline void reshape(Program& p) {
  if (p.batch() == 0) {
    return;
  }
  const std::int64_t dim = p.any_dim(), outer = p.outer(dim);
  if (p.random.chance(50) && dim + 1 < p.rank()) {
    if (!p.batch_first() && dim == 0) {
      return;
    }
    p.apply(
        call("flatten", {outer, outer + 1}), [=](const Tensor& t) { return t.flatten(outer, outer + 1); },
        [=](const Tensor& t, std::int64_t) { return t.flatten(dim, dim + 1); });
    return;
  }
  if (p.random.chance(40) && p.batch_first()) {
    const std::int64_t keep = p.random.below(p.rank() + 1);  // dimensions that stay in front
    Dims whole = {p.batch()};
    for (std::int64_t at = 0; at < keep; ++at) {
      whole.push_back(p.x.size(1 + at));
    }
    whole.push_back(-1);
    p.apply(
        concat("reshape", text_of(whole)), [=](const Tensor& t) { return t.reshape(whole); },
        [=](const Tensor& t, std::int64_t) {
          Dims own = t.sizes().vec();
          own.resize(static_cast<std::size_t>(keep));
          std::int64_t known = 1;
          for (const std::int64_t size : own) {
            known *= size;
          }
          std::int64_t rest = 1;
          for (std::int64_t at = keep; at < t.dim(); ++at) {
            rest *= t.size(at);
          }
          own.push_back(rest);
          return t.reshape(own);
        });
    return;
  }
  if (!p.has_static(dim)) {
    return;
  }
  const std::int64_t size = p.x.size(outer), parts = size % 2 == 0 && size > 0 ? 2 : 1;
  Dims sizes = {parts, size / parts};
  if (p.random.chance(50)) {
    std::swap(sizes[0], sizes[1]);
  }
  const std::size_t unknown = static_cast<std::size_t>(p.random.below(3));
  if (unknown < 2 && size > 0) {
    sizes[unknown] = -1;
  }
  p.apply(
      concat("unflatten", dim, text_of(sizes)), [=](const Tensor& t) { return t.unflatten(outer, sizes); },
      [=](const Tensor& t, std::int64_t) { return t.unflatten(dim, sizes); });
}

inline void expand(Program& p) {
  const std::int64_t dim = p.any_dim(), outer = p.outer(dim);
  if (!p.has_static(dim) || p.x.size(outer) != 1 || p.batch() == 0) {
    return;
  }
  Dims sizes = p.x.sizes().vec();
  for (std::int64_t& size : sizes) {
    size = p.random.chance(50) ? -1 : size;
  }
  sizes[static_cast<std::size_t>(outer)] = 3;
  p.apply(
      call("expand", {dim}), [=](const Tensor& t) { return t.expand(sizes); },
      [=](const Tensor& t, std::int64_t) {
        Dims own = t.sizes().vec();
        own[static_cast<std::size_t>(dim)] = 3;
        return t.expand(own);
      });
}

}  // namespace random_programs
