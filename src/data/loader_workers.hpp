// Worker threads that read batches ahead.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <c10/core/Device.h>

#include <data/loader_pipeline.hpp>

namespace danling::inline v0::data::detail {

struct WorkerOptions {
  std::int64_t num_workers = 1;
  /// Number of batches in a step.
  std::int64_t parts = 1;
  /// Maximum number of steps that are being read or waiting, in addition to the step delivered last.
  std::int64_t depth = 2;
  bool persistent = false;
  bool in_order = true;
  /// Pins memory for the accelerator of the loader's thread.
  bool pin = false;
};

/// Workers take turns in planning steps (which reads from a stream), and read planned steps in parallel.
class WorkerPipeline final : public Pipeline {
 public:
  WorkerPipeline(BatchReader& reader, WorkerOptions options);
  ~WorkerPipeline() override;

  void start(Planner& planner) override;
  BatchSlot* next() override;
  bool ended() override;
  void stop() override;
  void pause() override;
  void resume() override;
  std::vector<const BatchSlot*> overtaken(std::int64_t number) override;

 private:
  using Stage = BatchSlot::Stage;
  using Lock = std::unique_lock<std::mutex>;

  // Called in the loader's thread.
  void start_threads();
  void join_threads();
  bool retry_failed(Lock& lock);
  void interrupt(Lock& lock);
  BatchSlot* ready_slot() const;
  void mark_in_turn(BatchSlot& slot) const;

  // Called in the workers.
  void work(std::int64_t worker, std::optional<c10::DeviceIndex> device) noexcept;
  BatchSlot* waiting_slot() const;
  bool can_plan() const;
  void plan(Lock& lock);
  void read(BatchSlot& slot, Lock& lock);
  void release(BatchSlot& slot);

  BatchReader& reader_;
  const WorkerOptions options_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable wake_;    // workers wait for work
  std::condition_variable change_;  // the loader waits for workers
  Planner* planner_ = nullptr;
  std::vector<std::unique_ptr<BatchSlot>> slots_;
  BatchSlot* current_ = nullptr;
  std::int64_t planned_ = 0;  // number of steps planned in this epoch
  std::int64_t end_ = 0;      // the first step past the end
  std::int64_t in_use_ = 0;   // number of slots in use, without the current one
  std::int64_t active_ = 0;   // number of workers that plan or read
  bool running_ = false;      // workers may start a step
  bool planning_ = false;
  bool blocked_ = false;  // planning failed, and the caller has not seen the error yet
  bool paused_ = false;   // workers start nothing new
  bool exhausted_ = true;
  bool quit_ = false;
  std::atomic<bool> interrupted_ = false;  // planning and reading end at the next check for cancellation
};

}  // namespace danling::inline v0::data::detail
