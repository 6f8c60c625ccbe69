#include <tensors/nested/regroup.hpp>

#include <algorithm>

namespace danling::inline v0::detail {
namespace {

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

RaggedPtr split_elements(const RaggedPtr& ragged, std::int64_t parts) {
  return ragged->related(parts, [&]() -> RaggedPtr {
    const auto out = repeat_elements(*ragged, parts);
    out->set_origin(-parts, ragged);
    return out;
  });
}

RaggedPtr merge_elements(const RaggedPtr& ragged, std::int64_t parts) {
  return ragged->related(-parts, [&]() -> RaggedPtr {
    const auto out = thin_elements(*ragged, parts);
    if (out != nullptr) {
      out->set_origin(parts, ragged);
    }
    return out;
  });
}

}  // namespace danling::inline v0::detail
