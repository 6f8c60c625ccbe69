// Several datasets of single records one after another as one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/data/dataset_like.hpp>
#include <danling/data/offsets.hpp>
#include <danling/data/record_source.hpp>

namespace danling::inline v0::data {

/// See `concat_datasets`: of samples of type `S`, collated to batches of type `B` as the first part does.
template <class S, class B>
class ConcatRecords {
 public:
  template <class... T>
  explicit ConcatRecords(T... parts)
      : parts_{std::make_shared<Part<T>>(std::move(parts))...}, offsets_(detail::offsets_of(parts_)) {}

  std::int64_t size() const { return offsets_.size(); }
  S get(std::int64_t index, const SampleInfo& info) {
    const auto [part, own] = offsets_[index];
    return parts_[part]->get(own, info);
  }
  B collate(std::vector<S> samples) { return parts_.front()->collate(std::move(samples)); }
  State source_info(std::int64_t index) const {
    const auto [part, own] = offsets_[index];
    return parts_[part]->source_info(own);
  }
  std::optional<std::string> entry_key(std::int64_t index) const {
    const auto [part, own] = offsets_[index];
    return parts_[part]->entry_key(own);
  }
  std::int64_t random_layers() const { return detail::most_random_layers(parts_); }
  LoaderDefaults loader_defaults() const { return parts_.front()->loader_defaults(); }
  std::string split() const { return detail::split_of_all(parts_); }
  bool train() const { return detail::all_train(parts_); }

 private:
  struct AnyPart {
    virtual ~AnyPart() = default;
    virtual std::int64_t size() const = 0;
    virtual S get(std::int64_t index, const SampleInfo& info) = 0;
    virtual B collate(std::vector<S> samples) = 0;
    virtual State source_info(std::int64_t index) const = 0;
    virtual std::optional<std::string> entry_key(std::int64_t index) const = 0;
    virtual std::int64_t random_layers() const = 0;
    virtual LoaderDefaults loader_defaults() const = 0;
    virtual std::string split() const = 0;
    virtual bool train() const = 0;
  };
  template <class T>
  struct Part final : AnyPart, detail::RecordsAbove<T> {
    using Above = detail::RecordsAbove<T>;
    explicit Part(T base) : Above(std::move(base)) {}
    std::int64_t size() const override { return this->base_size(); }
    S get(std::int64_t index, const SampleInfo& info) override { return this->base_get(index, info); }
    B collate(std::vector<S> samples) override { return detail::collate_with(this->base(), std::move(samples)); }
    State source_info(std::int64_t index) const override { return Above::source_info(index); }
    std::optional<std::string> entry_key(std::int64_t index) const override { return Above::entry_key(index); }
    std::int64_t random_layers() const override { return Above::random_layers(); }
    LoaderDefaults loader_defaults() const override { return Above::loader_defaults(); }
    std::string split() const override { return Above::split(); }
    bool train() const override { return Above::train(); }
  };

  std::vector<std::shared_ptr<AnyPart>> parts_;
  detail::Offsets offsets_;
};

}  // namespace danling::inline v0::data
