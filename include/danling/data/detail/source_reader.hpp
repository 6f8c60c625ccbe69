// Reads batches of type B for the loader, which is independent of the type.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <danling/data/detail/batch_reader.hpp>
#include <danling/data/source.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {

template <class B>
class SourceSlot final : public BatchSlot {
 public:
  void drop() override {
    if constexpr (HasInfo<B>) {
      if (batch) {
        swap_memory(batch->info, spare);  // for the next batch
      }
    }
    batch.reset();
    job = nullptr;
  }

  std::optional<B> batch;
  std::function<B()> job;  // for a stream: makes the batch
  BatchInfo spare;
};

template <class B>
class SourceReader final : public BatchReader {
 public:
  SourceReader(Source<B> source, bool pin) : source_(std::move(source)), pin_(pin) {}

  std::unique_ptr<BatchSlot> make_slot() const override { return std::make_unique<SourceSlot<B>>(); }
  std::int64_t read(BatchSlot& in) override {
    auto& slot = static_cast<SourceSlot<B>&>(in);
    if (!source_.is_stream()) {
      slot.batch.reset();
      slot.batch.emplace(source_.dataset()->read(slot.info.indices, slot.info));
    } else if (slot.job) {
      slot.batch.emplace(slot.job());
      slot.job = nullptr;
    }
    return data::batch_size(*slot.batch);
  }
  void finish(BatchSlot& in) override {
    auto& slot = static_cast<SourceSlot<B>&>(in);
    if constexpr (HasPinMemory<B>) {
      if (pin_) {
        *slot.batch = data::pin_memory(std::move(*slot.batch));
      }
    }
    if constexpr (HasInfo<B>) {
      slot.copy_info(slot.batch->info, slot.spare);
    }
  }

  std::optional<std::int64_t> size() const override { return source_.size(); }
  const void* stream() const override { return source_.stream().get(); }
  bool prepare(BatchSlot& in) override {
    auto& slot = static_cast<SourceSlot<B>&>(in);
    slot.job = source_.stream()->read(static_cast<std::int64_t>(slot.info.indices.size()), slot.info);
    return static_cast<bool>(slot.job);
  }
  std::int64_t skip(std::int64_t num_samples) override { return source_.stream()->skip(num_samples); }
  void reset(std::int64_t epoch) override { source_.stream()->reset(epoch); }
  // Copies the state: the stream may change its tensors later.
  State state_dict() const override { return clone(source_.stream()->state_dict()); }
  void load_state_dict(const State& state) override { source_.stream()->load_state_dict(clone(state)); }

 private:
  Source<B> source_;
  bool pin_;
};

}  // namespace detail

}  // namespace danling::inline v0::data
