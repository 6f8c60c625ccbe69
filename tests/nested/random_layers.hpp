// Products, layers and losses of random programs.
#pragma once

#include <nested/random_calls.hpp>

namespace random_programs {

// ---- Products and layers

inline void linear(Program& p) {
  if (!p.floating() || !p.has_static(p.rank() - 1) || p.x.scalar_type() != torch::kDouble) {
    return;
  }
  const std::int64_t in = p.x.size(p.outer(p.rank() - 1)), out = p.random.between(1, 4), kind = p.random.below(5);
  const auto [weight, other_weight] = p.leaf(kind < 3 ? Dims{out, in} : Dims{in});
  const auto [bias, other_bias] = p.leaf(kind < 3 ? Dims{out} : Dims{in});
  if (p.batch_dim() == p.rank()) {
    return;
  }
  const auto run = [=](const Tensor& t, const Tensor& w, const Tensor& b) {
    return kind == 0   ? torch::linear(t, w, b)
           : kind == 1 ? torch::linear(t, w)
           : kind == 2 ? torch::matmul(t, w.t()) + b
           : kind == 3 ? torch::layer_norm(t, {in}, w, b, 1e-2)
                       : torch::matmul(t, w);
  };
  p.apply(
      call(concat("linear ", kind, " "), {out, in}),
      [=, weight = weight, bias = bias](const Tensor& t) { return run(t, weight, bias); },
      [=, weight = other_weight, bias = other_bias](const Tensor& t, std::int64_t) { return run(t, weight, bias); },
      batch_after(p, p.rank()));
}

inline void matmul(Program& p) {
  if (p.x.scalar_type() != torch::kDouble || p.rank() < 2 || p.ragged().empty() || p.batch() == 0 ||
      p.largest() > 1e3) {
    return;
  }
  const std::int64_t kind = p.random.below(5);
  if (kind == 0) {
    both(p, "matmul mT", [](const Tensor& t) { return torch::matmul(t, t.mT()); });
  } else if (kind == 1) {
    both(p, "mT matmul", [](const Tensor& t) { return torch::matmul(t.mT(), t); });
  } else {
    auto shapes = p.shapes();
    const std::int64_t columns = p.random.between(1, 3);
    const bool right = kind != 2, ragged = p.random.chance(50) && p.is_ragged(p.rank() - (right ? 2 : 1));
    for (Dims& one : shapes) {
      std::swap(one[one.size() - 1], one[one.size() - 2]);
      one[one.size() - (right ? 1 : 2)] = ragged ? p.random.between(0, 3) : columns;
    }
    Dims dims = p.ragged();
    for (std::int64_t& dim : dims) {
      dim = dim == p.rank() - 1 ? dim - 1 : dim == p.rank() - 2 ? dim + 1 : dim;
    }
    std::sort(dims.begin(), dims.end());
    Tensors own, other;
    for (const Dims& one : shapes) {
      const auto pair = p.leaf(one);
      own.push_back(pair.first);
      other.push_back(pair.second);
    }
    const NestedTensor factor(own, {.batch_first = p.batch_first(), .ragged_dims = dims});
    p.apply(
        concat(right ? "matmul by " : "matmul of ", text_of(own)),
        [=](const Tensor& t) { return right ? torch::matmul(t, factor) : torch::matmul(factor, t); },
        [=](const Tensor& t, std::int64_t at) {
          const Tensor& part = other[static_cast<std::size_t>(at)];
          return right ? torch::matmul(t, part) : torch::matmul(part, t);
        });
  }
}

/// One loss of all tokens; the target nested or padded.
inline void loss(Program& p) {
  if (p.x.scalar_type() != torch::kDouble || p.batch() == 0 || p.x.numel() == 0 || p.ragged().empty()) {
    return;
  }
  const std::int64_t kind = p.random.below(6), reduction = p.random.between(0, 2);
  const auto [target, parts] = p.nested_leaf(p.shapes());
  const Tensor given = p.random.chance(50) ? target : NestedTensor(target).with_padding_value(1e6).tensor();
  const auto run = [=](const Tensor& t, const Tensor& to) {
    switch (kind) {
      case 0:
        return torch::mse_loss(t, to, reduction);
      case 1:
        return torch::l1_loss(t, to, reduction);
      case 2:
        return torch::smooth_l1_loss(t, to, reduction);
      case 3:
        return torch::binary_cross_entropy_with_logits(t, to.sigmoid(), {}, {}, reduction);
      case 4:
        return torch::kl_div(t, to.sigmoid(), reduction);
      default:
        return torch::huber_loss(t, to, reduction);
    }
  };
  const std::string name = call("loss ", {kind, reduction, NestedTensor::is_nested(given)});
  if (reduction == 0) {
    p.apply(
        name, [=](const Tensor& t) { return run(t, given); },
        [=, parts = parts](const Tensor& t, std::int64_t at) { return run(t, parts[static_cast<std::size_t>(at)]); });
    return;
  }
  p.finish(
      name, [=](const Tensor& t) { return run(t, given); },
      [=, parts = parts](const Tensors& all) {
        Tensors rows, targets;
        for (std::size_t at = 0; at < all.size(); ++at) {
          rows.push_back(all[at].flatten());
          targets.push_back(parts[at].flatten());
        }
        return run(torch::cat(rows), torch::cat(targets));
      });
}

/// Classes last, or behind the batch.
inline void class_loss(Program& p) {
  if (p.x.scalar_type() != torch::kDouble || p.batch() == 0 || p.x.numel() == 0 || p.rank() < 2 || !p.batch_first() ||
      p.ragged().empty()) {
    return;
  }
  const bool second = p.has_static(0);
  const std::int64_t classes_dim = second ? 0 : p.rank() - 1;
  if (!p.has_static(classes_dim)) {
    return;
  }
  const std::int64_t classes = p.x.size(p.outer(classes_dim)), reduction = p.random.between(0, 2);
  const bool ignored = p.random.chance(30);
  const double smoothing = p.random.chance(30) ? 0.1 : 0;
  Tensors labels;
  for (const Tensor& one : p.each) {
    Dims sizes = one.sizes().vec();
    sizes.erase(sizes.begin() + classes_dim);
    labels.push_back(p.random.values(sizes).abs().mul(7).to(torch::kLong).remainder(classes));
  }
  Dims dims = p.ragged();
  for (std::int64_t& dim : dims) {
    dim -= dim > classes_dim ? 1 : 0;
  }
  const Tensor weight = p.random.values({classes}).abs();
  const NestedTensor nested(labels, {.ragged_dims = dims});
  const Tensor given = p.random.chance(50) ? Tensor(nested) : nested.with_padding_value(1e6).tensor();
  const auto run = [=](const Tensor& t, const Tensor& to) {
    return torch::cross_entropy_loss(t, to, weight, reduction, ignored ? 0 : -100, smoothing);
  };
  const std::string name = call(ignored ? "cross entropy ignoring " : "cross entropy ", {reduction, second});
  if (reduction == 0) {
    p.apply(
        name, [=](const Tensor& t) { return run(t, given); },
        [=](const Tensor& t, std::int64_t at) {
          return run(t.movedim(classes_dim, 0).unsqueeze(0), labels[static_cast<std::size_t>(at)].unsqueeze(0))
              .squeeze(0);
        });
    return;
  }
  p.finish(
      name, [=](const Tensor& t) { return run(t, given); },
      [=](const Tensors& all) {
        Tensors rows, targets;
        for (std::size_t at = 0; at < all.size(); ++at) {
          rows.push_back(all[at].movedim(classes_dim, -1).reshape({-1, classes}));
          targets.push_back(labels[at].flatten());
        }
        return run(torch::cat(rows), torch::cat(targets));
      });
}

inline void layer(Program& p) {
  if (p.x.scalar_type() != torch::kDouble || p.batch() == 0 || p.x.numel() == 0 || p.rank() < 2 || !p.batch_first()) {
    return;
  }
  const std::int64_t kind = p.random.below(6), last = p.rank() - 1;
  const std::int64_t size = p.x.size(p.rank());
  if (kind < 3 && p.has_static(last)) {
    const auto [weight, other] = p.leaf({size, 2});
    if (kind == 0) {
      p.apply(
          "einsum", [=, w = weight](const Tensor& t) { return torch::matmul(t, w).cumsum(-1); },
          [=, w = other](const Tensor& t, std::int64_t) { return torch::matmul(t, w).cumsum(-1); });
    } else if (kind == 1) {
      both(p, "cosine_similarity", [=](const Tensor& t) { return torch::cosine_similarity(t, t.sin(), -1); });
    } else if (p.rank() == 2 && p.is_ragged(0)) {
      p.apply(
          "baddbmm", [=, w = weight](const Tensor& t) { return torch::rms_norm(torch::matmul(t, w), {2}); },
          [=, w = other](const Tensor& t, std::int64_t) { return torch::rms_norm(torch::matmul(t, w), {2}); });
    }
    return;
  }
  if (p.rank() == 2 && p.has_static(0) && p.is_ragged(1) && !p.any_empty(1)) {  // channels, length
    const std::int64_t channels = p.x.size(1);
    const auto [weight, other] = p.leaf({3, channels, 2});
    if (kind == 3) {
      p.apply(
          "conv1d", [=, w = weight](const Tensor& t) { return torch::conv1d(t, w, {}, 1, 1); },
          [=, w = other](const Tensor& t, std::int64_t) {
            return torch::conv1d(t.unsqueeze(0), w, {}, 1, 1).squeeze(0);
          });
    } else if (kind == 4) {
      p.apply(
          "group_norm", [=](const Tensor& t) { return torch::group_norm(t, channels % 2 == 0 ? 2 : 1, {}, {}, 1e-2); },
          [=](const Tensor& t, std::int64_t) {
            return torch::group_norm(t.unsqueeze(0), channels % 2 == 0 ? 2 : 1, {}, {}, 1e-2).squeeze(0);
          });
    } else {
      both(p, "avg_pool1d", [](const Tensor& t) { return torch::avg_pool1d(t, 2, 1, 1); });
    }
    return;
  }
  if (p.rank() == 3 && p.has_static(2)) {
    both(p, "attention", [](const Tensor& t) { return torch::matmul(torch::matmul(t, t.mT()).softmax(-1), t); });
  }
}

inline void lower(Program& p) {
  const std::int64_t kind = p.random.below(3), n = p.random.between(-1, 1);
  if (p.rank() < 2) {
    return;
  }
  both(p, call(concat("tri ", kind, " "), {n}), [=](const Tensor& t) {
    return kind == 0 ? t.tril(n) : kind == 1 ? t.triu(n) : t.mH();
  });
}

}  // namespace random_programs
