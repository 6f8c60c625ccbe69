#include "tensors/nested/regroup.hpp"

#include <algorithm>

namespace danling::inline v0::detail {
namespace {

std::shared_ptr<const RowOrder> order_of_parts(const Ragged& whole, std::int64_t parts) {
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(whole.rows() * parts));
  for (std::int64_t element = 0; element < whole.batch(); ++element) {
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t row = 0; row < whole.rows_of(element); ++row) {
        rows.push_back((whole.begin(element) + row) * parts + part);
      }
    }
  }
  return std::make_shared<const RowOrder>(std::move(rows));
}

std::shared_ptr<Ragged> repeat_elements(const Ragged& ragged, std::int64_t parts) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto own = ragged.sizes(element);
      sizes.insert(sizes.end(), own.begin(), own.end());
    }
  }
  return std::make_shared<Ragged>(ragged.batch() * parts, ragged.rank(), std::move(sizes));
}

std::shared_ptr<Ragged> thin_elements(const Ragged& ragged, std::int64_t parts) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    const auto own = ragged.sizes(element), first = ragged.sizes(element - element % parts);
    if (!std::equal(own.begin(), own.end(), first.begin())) {
      return nullptr;
    }
    if (element % parts == 0) {
      sizes.insert(sizes.end(), own.begin(), own.end());
    }
  }
  return std::make_shared<Ragged>(ragged.batch() / parts, ragged.rank(), std::move(sizes));
}

}  // namespace

Ragged::Related split_elements(const RaggedPtr& ragged, std::int64_t parts) {
  return ragged->related(parts, [&]() -> Ragged::Related {
    const auto out = repeat_elements(*ragged, parts);
    auto order = order_of_parts(*ragged, parts);
    out->set_origin(-parts, ragged, order);
    return {out, order};
  });
}

Ragged::Related merge_elements(const RaggedPtr& ragged, std::int64_t parts) {
  return ragged->related(-parts, [&]() -> Ragged::Related {
    const auto out = thin_elements(*ragged, parts);
    if (out == nullptr) {
      return {};
    }
    auto order = order_of_parts(*out, parts);
    out->set_origin(parts, ragged, order);
    return {out, order};
  });
}

}  // namespace danling::inline v0::detail
