// Who reads the batches that a planner plans: the calling thread, or workers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <danling/data/batch_reader.hpp>

#include "data/loader_planner.hpp"

namespace danling::inline v0::data::detail {

/// All functions are for the thread of the loader.
class Pipeline {
 public:
  virtual ~Pipeline();

  /// Begins with what this planner plans; nothing is under way.
  virtual void start(Planner& planner) = 0;
  /// The next batch, which stays until the next call; null at the end, and from then on. Throws what reading it threw,
  /// and then tries it again.
  virtual BatchSlot* next() = 0;
  /// Whether the batch that `next` gave is the last one. Never throws: an error here is that of the next batch.
  virtual bool ended() = 0;
  /// Drops all batches; waits for the samples that are being read.
  virtual void stop() = 0;
  /// Returns when nothing uses the source, which waits for the samples that are being read; until `resume` or `stop`.
  virtual void pause() = 0;
  /// Goes on; what `pause` interrupted is read again.
  virtual void resume() = 0;
  /// Batches that were planned before batch `number`, which was given, and were not given themselves; in that order.
  virtual std::vector<const BatchSlot*> overtaken(std::int64_t number) = 0;
};

/// Reads in the calling thread.
class DirectPipeline final : public Pipeline {
 public:
  explicit DirectPipeline(BatchReader& reader)
      : reader_(reader), current_(reader.make_slot()), ahead_(reader.make_slot()) {}

  void start(Planner& planner) override;
  BatchSlot* next() override;
  bool ended() override;
  void stop() override;
  void pause() override {}
  void resume() override {}
  std::vector<const BatchSlot*> overtaken(std::int64_t) override { return {}; }

 private:
  bool plan_ahead();
  bool read_ahead();

  BatchReader& reader_;
  Planner* planner_ = nullptr;
  std::unique_ptr<BatchSlot> current_;
  std::unique_ptr<BatchSlot> ahead_;  // `planned` says whether it holds one; ready when it was read too
  std::int64_t planned_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;  // of looking ahead
};

}  // namespace danling::inline v0::data::detail
