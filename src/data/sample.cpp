#include <danling/data/sample.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

template <class Part>
auto collate_member(const std::vector<Sample>& samples, Part Sample::*member, const char* name) {
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

}  // namespace danling::inline v0::data
