// Reductions of random programs.
#pragma once

#include <nested/random_calls.hpp>

namespace random_programs {

// ---- Reductions

struct Reduction {
  const char* name;
  Tensor (*run)(const Tensor&, const Dims&, bool keepdim);
  bool floats, one_dim, no_empty, no_ties;
};
inline const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> all = {
      {"sum", [](const Tensor& t, const Dims& d, bool k) { return t.sum(d, k); }, false, false, false, false},
      {"mean", [](const Tensor& t, const Dims& d, bool k) { return t.mean(d, k); }, true, false, false, false},
      {"amax", [](const Tensor& t, const Dims& d, bool k) { return t.amax(d, k); }, false, false, true, false},
      {"amin", [](const Tensor& t, const Dims& d, bool k) { return t.amin(d, k); }, false, false, true, false},
      {"var", [](const Tensor& t, const Dims& d, bool k) { return t.var(d, 1, k); }, true, false, true, false},
      {"std 0", [](const Tensor& t, const Dims& d, bool k) { return t.square().add(1).std(d, 0, k); }, true, false,
       true, true},
      {"norm 2", [](const Tensor& t, const Dims& d, bool k) { return torch::linalg_vector_norm(t, 2, d, k); }, true,
       false, false, false},
      {"norm 1", [](const Tensor& t, const Dims& d, bool k) { return torch::linalg_vector_norm(t, 1, d, k); }, true,
       false, false, false},
      {"norm 3", [](const Tensor& t, const Dims& d, bool k) { return torch::linalg_vector_norm(t, 3, d, k); }, true,
       false, false, false},
      {"norm inf", [](const Tensor& t, const Dims& d, bool k) { return torch::linalg_vector_norm(t, INFINITY, d, k); },
       true, false, true, false},
      {"norm 0", [](const Tensor& t, const Dims& d, bool k) { return torch::linalg_vector_norm(t, 0, d, k); }, true,
       false, false, false},
      {"logsumexp", [](const Tensor& t, const Dims& d, bool k) { return t.logsumexp(d, k); }, true, false, true, false},
      {"any", [](const Tensor& t, const Dims& d, bool k) { return torch::any(t, d, k); }, false, false, false, false},
      {"all", [](const Tensor& t, const Dims& d, bool k) { return torch::all(t, d, k); }, false, false, false, false},
      {"nansum", [](const Tensor& t, const Dims& d, bool k) { return t.nansum(d, k); }, false, false, false, false},
      {"nanmean", [](const Tensor& t, const Dims& d, bool k) { return t.nanmean(d, k); }, true, false, true, false},
      {"prod", [](const Tensor& t, const Dims& d, bool k) { return t.prod(d[0], k); }, false, true, false, false},
      {"max", [](const Tensor& t, const Dims& d, bool k) { return std::get<0>(t.max(d[0], k)); }, false, true, true,
       true},
      {"max index", [](const Tensor& t, const Dims& d, bool k) { return std::get<1>(t.max(d[0], k)); }, false, true,
       true, true},
      {"argmin", [](const Tensor& t, const Dims& d, bool k) { return t.argmin(d[0], k); }, false, true, true, true},
      {"argmax", [](const Tensor& t, const Dims& d, bool k) { return t.argmax(d[0], k); }, false, true, true, true},
      {"median", [](const Tensor& t, const Dims& d, bool k) { return std::get<0>(t.median(d[0], k)); }, false, true,
       true, true},
      {"aminmax", [](const Tensor& t, const Dims& d, bool k) { return std::get<1>(t.aminmax(d[0], k)); }, false, true,
       true, false},
      {"count_nonzero", [](const Tensor& t, const Dims& d, bool) { return t.count_nonzero(d); }, false, false, false,
       false},
      {"std_mean", [](const Tensor& t, const Dims& d, bool k) { return std::get<1>(torch::std_mean(t, d, 1, k)); },
       true, false, true, false},
  };
  return all;
}

inline void reduce(Program& p) {
  const auto& list = reductions();
  const Reduction& one = list[static_cast<std::size_t>(p.random.below(std::ssize(list)))];
  if ((one.floats && !p.floating()) || (one.no_ties && p.batch() > 0 && p.has_ties()) ||
      (one.no_empty && p.any_empty()) || p.batch() == 0) {
    return;
  }
  Dims dims, outer;
  for (std::int64_t dim = 0; dim < p.rank(); ++dim) {
    if (p.random.chance(50) && (dims.empty() || !one.one_dim)) {
      dims.insert(dims.begin() + p.random.below(std::ssize(dims) + 1), dim);
    }
  }
  if (dims.empty()) {
    dims = {p.any_dim()};
  }
  bool first_gone = false;
  for (const std::int64_t dim : dims) {
    outer.push_back(p.outer_any(dim));
    first_gone = first_gone || dim == 0;
  }
  const bool keepdim = p.random.chance(40) && std::string(one.name) != "count_nonzero";
  const bool second = p.batch_dim() == 1 && (keepdim || !first_gone);
  p.apply(
      concat(one.name, text_of(dims), keepdim ? " keepdim" : ""),
      [=](const Tensor& t) { return one.run(t, outer, keepdim); },
      [=](const Tensor& t, std::int64_t) { return one.run(t, dims, keepdim); }, second ? 1 : 0);
}

/// Over the batch too: all values, or all tokens.
inline void reduce_all(Program& p) {
  if (p.batch() == 0) {
    return;
  }
  const auto& list = reductions();
  const Reduction& one = list[static_cast<std::size_t>(p.random.below(std::ssize(list)))];
  if ((one.floats && !p.floating()) || (one.no_empty && p.any_empty()) || one.one_dim) {
    return;
  }
  Dims gone = {p.batch_dim()}, own;
  for (std::int64_t dim = 0; dim < p.rank(); ++dim) {
    if (p.is_ragged(dim) || p.random.chance(50)) {
      gone.push_back(p.outer(dim));
      own.push_back(dim);
    }
  }
  if (own.empty()) {
    return;
  }
  const std::int64_t rank = p.rank();
  // Without dimensions var has a gradient of infinity in LibTorch.
  const bool none = p.random.chance(30) && std::string(one.name).find("st") != 0 && std::string(one.name) != "var" &&
                    std::string(one.name) != "any" && std::string(one.name) != "all";
  if (none) {
    gone.clear();
    own.clear();
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      own.push_back(dim);
    }
  }
  p.finish(
      concat("over all: ", one.name, text_of(gone)), [=](const Tensor& t) { return one.run(t, gone, false); },
      [=](const Tensors& all) {
        Tensors rows;
        for (const Tensor& each : all) {
          Dims places;
          for (std::size_t at = 0; at < own.size(); ++at) {
            places.push_back(static_cast<std::int64_t>(at));
          }
          rows.push_back(each.movedim(own, places).flatten(0, std::ssize(own) - 1));
        }
        return one.run(torch::cat(rows), {0}, false);
      });
}

/// The batch as the dimension to reduce: each element over all its values.
inline void reduce_elements(Program& p) {
  const auto& list = reductions();
  const Reduction& one = list[static_cast<std::size_t>(p.random.below(std::ssize(list)))];
  if (p.batch() == 0 || (one.floats && !p.floating()) || (one.no_empty && p.any_empty()) ||
      (one.no_ties && p.has_ties())) {
    return;
  }
  const std::int64_t dim = p.batch_dim();
  p.apply(
      concat("each: ", one.name), [=](const Tensor& t) { return one.run(t, {dim}, false); },
      [=](const Tensor& t, std::int64_t) { return one.run(t.flatten(), {0}, false); });
}

}  // namespace random_programs
