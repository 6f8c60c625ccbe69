// Several datasets one after another as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <danling/data/concat_records.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/merge.hpp>
#include <danling/data/offsets.hpp>
#include <danling/data/record_source.hpp>
#include <danling/data/shared_batches.hpp>

namespace danling::inline v0::data {

/// See `concat_datasets`. A batch that has records of several parts is read from each and merged.
template <Mergeable B>
class ConcatDataset final : public Dataset<B> {
 public:
  /// @throws DataError when there is no part.
  explicit ConcatDataset(std::vector<std::shared_ptr<Dataset<B>>> parts)
      : parts_(std::move(parts)), offsets_(detail::offsets_of(parts_)) {}

  std::int64_t size() const override { return offsets_.size(); }
  B get_batch(std::span<const std::int64_t> indices) override { return read_parts(indices, nullptr); }
  B read(std::span<const std::int64_t> indices, const BatchInfo& info) override { return read_parts(indices, &info); }
  State source_info(std::int64_t index) const override {
    const auto [part, own] = offsets_[index];
    return parts_[part]->source_info(own);
  }
  std::optional<std::string> entry_key(std::int64_t index) const override {
    const auto [part, own] = offsets_[index];
    return parts_[part]->entry_key(own);
  }
  std::int64_t random_layers() const override { return detail::most_random_layers(parts_); }
  /// Of the first part.
  LoaderDefaults loader_defaults() const override { return parts_.front()->loader_defaults(); }
  std::string split() const override { return detail::split_of_all(parts_); }
  bool train() const override { return detail::all_train(parts_); }

 private:
  B read_parts(std::span<const std::int64_t> indices, const BatchInfo* info) {
    struct Share {
      std::vector<std::int64_t> indices;
      std::vector<std::size_t> samples;  // of the batch
    };
    std::vector<Share> shares(parts_.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto [part, own] = offsets_[indices[i]];
      shares[part].indices.push_back(own);
      shares[part].samples.push_back(i);
    }
    std::vector<B> batches;
    std::vector<std::int64_t> order(indices.size());
    std::int64_t at = 0;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const Share& share = shares[part];
      if (share.indices.empty() && !(indices.empty() && part == 0)) {
        continue;
      }
      if (info == nullptr) {
        batches.push_back(parts_[part]->get_batch(share.indices));
      } else if (share.indices.size() == indices.size()) {
        return parts_[part]->read(share.indices, *info);
      } else {
        batches.push_back(parts_[part]->read(share.indices, info->select(share.samples)));
      }
      for (const std::size_t sample : share.samples) {
        order[sample] = at++;
      }
    }
    return batches.size() == 1 ? std::move(batches.front()) : merge_batches(std::move(batches), order);
  }

  std::vector<std::shared_ptr<Dataset<B>>> parts_;
  detail::Offsets offsets_;
};

namespace detail {
template <class First, class... Rest>
concept SameRecords = (RecordSource<First> && ... && RecordSource<Rest>)&&SampleSource<pointee_of<First>> &&
                      (SampleSource<pointee_of<Rest>> && ...) &&
                      (std::same_as<record_of<First>, record_of<Rest>> && ...) &&
                      (std::same_as<batch_of<pointee_of<First>>, batch_of<pointee_of<Rest>>> && ...);
}  // namespace detail

/// `parts` one after another: record 0 of the second follows the last of the first. Parts that all have `get` for one
/// type of sample, and collate alike, give an object that has it too (for loaders, `make_dataset`, `map`); other
/// datasets of one type of batch give a shared pointer, and batches across parts are put together by `merge_batches`.
/// `split()` is what all parts say, training data is what all parts are.
template <class First, class... Rest>
auto concat_datasets(First first, Rest... rest) {
  if constexpr (detail::SameRecords<First, Rest...>) {
    return ConcatRecords<detail::record_of<First>, batch_of<detail::pointee_of<First>>>(std::move(first),
                                                                                        std::move(rest)...);
  } else {
    static_assert((detail::GivesBatches<First> && ... && detail::GivesBatches<Rest>),
                  "concat_datasets needs datasets, or std::shared_ptrs to datasets");
    using B = detail::given_batch<First>;
    static_assert((std::same_as<B, detail::given_batch<Rest>> && ...), "the parts must have one type of batch");
    return concat_datasets(std::vector<std::shared_ptr<Dataset<B>>>{detail::shared_batches(std::move(first)),
                                                                    detail::shared_batches(std::move(rest))...});
  }
}

/// The same for a number of parts that is not known before.
template <class B>
auto concat_datasets(std::vector<std::shared_ptr<Dataset<B>>> parts) {
  static_assert(Mergeable<B>,
                "batches of several parts are put together by a B merge_batches(std::vector<B> parts, "
                "std::span<const std::int64_t> order) beside the batch type; without it give concat_datasets objects "
                "that have get");
  return std::shared_ptr<Dataset<B>>(std::make_shared<ConcatDataset<B>>(std::move(parts)));
}

}  // namespace danling::inline v0::data
