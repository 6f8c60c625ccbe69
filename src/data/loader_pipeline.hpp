// Reads planned batches, in the calling thread or in workers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <danling/data/detail/batch_reader.hpp>

#include <data/loader_planner.hpp>

namespace danling::inline v0::data::detail {

/// Creates the slots for a step of `parts` batches.
std::unique_ptr<BatchSlot> make_slots(const BatchReader& reader, std::int64_t parts);

/// Delivers steps: a batch together with the process's other parts of the same global batch. All are read before the
/// first is delivered, so a failed read leaves no step half done. Call all functions in the loader's thread.
class Pipeline {
 public:
  virtual ~Pipeline();

  /// Starts with the batches of this planner; nothing may be in progress.
  virtual void start(Planner& planner) = 0;
  /// Returns the next step, valid until the next call; null at the end, and on further calls. Rethrows an error of
  /// reading it; the next call retries.
  virtual BatchSlot* next() = 0;
  /// Returns true if the step that `next` returned is the last one. Never throws: the following `next` throws such
  /// errors.
  virtual bool ended() = 0;
  /// Drops all batches; waits for samples that workers are reading.
  virtual void stop() = 0;
  /// Waits for samples that workers are reading; nothing uses the source until `resume` or `stop`.
  virtual void pause() = 0;
  /// Resumes after `pause`; interrupted batches are read again.
  virtual void resume() = 0;
  /// Returns the undelivered batches that were planned before delivered batch `number`, in planned order.
  virtual std::vector<const BatchSlot*> overtaken(std::int64_t number) = 0;
};

/// Reads in the calling thread.
class DirectPipeline final : public Pipeline {
 public:
  DirectPipeline(BatchReader& reader, std::int64_t parts)
      : reader_(reader), current_(make_slots(reader, parts)), ahead_(make_slots(reader, parts)) {}

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
  std::unique_ptr<BatchSlot> ahead_;  // contains a step if `planned`; ready if it was also read
  std::int64_t planned_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;  // error of reading ahead
};

}  // namespace danling::inline v0::data::detail
