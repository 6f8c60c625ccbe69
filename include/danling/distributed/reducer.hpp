// Sums of gradients over the ranks of a group, in buckets, while backward still runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/powersgd.hpp>

namespace danling::inline v0 {

struct ReducerOptions {
  /// Limits of size in bytes: of a bucket, and of the first one, which is smaller because backward completes the last
  /// parameters first.
  std::int64_t bucket_bytes = 25 << 20, first_bucket_bytes = 1 << 20;
  /// Begins a bucket's sum when backward has completed it; otherwise `finish` does.
  bool overlap = true;
  /// Uses shared memory where all ranks are on one machine.
  bool shared_memory = true;
  /// Element type in which float32 and float64 gradients travel: bfloat16 or float16. Undefined: their own.
  at::ScalarType wire_dtype = at::ScalarType::Undefined;
  /// Sums approximations in place of gradients; not with `wire_dtype`.
  std::optional<PowerSGDOptions> powersgd = std::nullopt;
  /// Of the sums of gradients; other exchanges have the group's.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// State of PowerSGD between updates. The lists have an entry per parameter; undefined where there is none.
struct PowerSGDState {
  std::int64_t iteration = 0;       ///< updates that are done
  std::vector<at::Tensor> errors;   ///< of this rank, [rows, columns], without the loss scale
  std::vector<at::Tensor> factors;  ///< for the next update, [columns, rank]; the same on all ranks
};

/// Sums the gradients of parameters over all ranks. It owns the memory of the gradients: after a backward pass `grad()`
/// of a parameter is a view of a bucket. An optimizer may set the gradients to undefined; the next pass fills the
/// buckets again.
///
/// A window is one or more backward passes; those before the last communicate nothing. All ranks call `finish` equally
/// often and in the same order; the number of their backward passes may differ, and parameters may be without gradient
/// on some ranks. Sums are the same on all ranks: through shared memory along one tree over the ranks, else in the
/// order of the backend. Between the last backward pass and `finish` gradients must not be changed.
///
/// For dense gradients of one device. For one thread.
class Reducer {
 public:
  /// Called by all ranks with parameters alike in number, order, shape and dtype; those that require no gradient are
  /// left out. @throws DistributedError on all ranks when they differ.
  Reducer(const std::vector<at::Tensor>& params, Group group, ReducerOptions options = {});
  /// Gradients of an open window stay, in memory of their own.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Whether these are its parameters, and the same ones require gradients.
  bool covers(const std::vector<at::Tensor>& params) const;

  /// Whether sums of the open window have begun.
  bool has_started() const;
  /// Called before each backward pass. @param closes  the window's last micro-batch: sums may begin.
  void begin_backward(bool closes);
  /// Whether a parameter has no gradient in this window on this rank.
  bool is_missing() const;
  /// Whether a gradient came after the sum of its bucket had begun: more backward passes than in the windows before.
  bool is_late() const;
  /// Ends the window: `grad()` of each parameter becomes the sum over all ranks, or undefined where no rank has one.
  /// Waits for the other ranks, and for the device.
  /// @param any_missing  whether `is_missing` is true on any rank, any_late the same of `is_late`: the same on all
  /// ranks
  /// @throws DistributedError, and StateError when a gradient was changed while it was summed.
  void finish(bool any_missing, bool any_late);
  /// The same; asks the other ranks for both.
  void finish();
  /// Forgets the gradients of an open window. When its sums have begun, the next backward pass throws a StateError: the
  /// other ranks wait for them.
  void drop();

  /// State of PowerSGD between windows, by the position of parameters; nothing without it.
  PowerSGDState powersgd_state() const;
  /// Entries of other shapes are left out. Called by all ranks with the same `iteration` and `factors`.
  void load_powersgd_state(const PowerSGDState& state);
  /// The factor of the next window's gradients, a scalar on their device: PowerSGD keeps its errors without it. Called
  /// by all ranks with the same, between windows.
  void set_loss_scale(const at::Tensor& scale);

  /// Ends the waits of the other ranks for this one's gradients; they throw `reason`.
  void abort(std::string_view reason);
  void set_timeout(std::chrono::milliseconds timeout);
  /// How sums are made, for logs: "shared memory", "collectives of the group" with the reason against shared memory in
  /// parentheses, or "PowerSGD of rank 2 by " one of them.
  std::string text() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
