// Batches of text, as a user's type: `struct Words : TextBatch<Words> {}` with a collate in its namespace that calls
// `of`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

namespace danling_test {

/// `Self` derives from it and has no tensors. Functions that are found by the type (collate, uncollate) are those of
/// its namespace.
template <class Self>
struct TextBatch {
  std::vector<std::string> texts;

  std::int64_t size() const { return static_cast<std::int64_t>(texts.size()); }
  Self to(c10::Device) const { return static_cast<const Self&>(*this); }
  /// Collates samples that have a `text`.
  template <class Sample>
  static Self of(std::vector<Sample> samples) {
    Self out;
    for (Sample& sample : samples) {
      out.texts.push_back(std::move(sample.text));
    }
    return out;
  }
};

}  // namespace danling_test
