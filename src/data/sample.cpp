#include <danling/data/sample.hpp>

#include <danling/core/error.hpp>
#include <danling/core/text_traits.hpp>
#include <danling/data/collate_nested.hpp>
#include <danling/data/collate_padded.hpp>

namespace danling::inline v0::data {

namespace {

template <class Part>
auto collate_member(const std::vector<Sample>& samples, Part Sample::* member, const char* name) {
  detail::Parts<Part> parts;
  parts.reserve(samples.size());
  for (const Sample& sample : samples) {
    parts.push_back(&(sample.*member));
  }
  return detail::collate_parts(parts, name);
}

}  // namespace

Batch collate(std::vector<Sample> samples) {
  check<DataError>(!samples.empty(), "data.collate", "expected at least one sample, got none");
  Batch batch;
  batch.input = collate_member(samples, &Sample::input, "input");
  batch.target = collate_member(samples, &Sample::target, "target");
  batch.extra = collate_member(samples, &Sample::extra, "extra");
  return batch;
}

Batch collate(std::vector<Sample> samples, Collation collation) {
  return collation == Collation::padded   ? collate_padded(std::move(samples))
         : collation == Collation::nested ? collate_nested(std::move(samples))
                                          : collate(std::move(samples));
}

namespace detail {

void refuse_collation(Collation collation, std::string_view source) {
  fail<ConfigError>("data.collate", "expected samples of the type dl::data::Sample for collation ",
                    TextTraits<Collation>::format(collation), ", got ", source,
                    "; unset the loader's option collation (dataloader.collation), and collate in the dataset");
}

}  // namespace detail

}  // namespace danling::inline v0::data
