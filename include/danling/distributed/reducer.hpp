// Sums gradients over the ranks of a group in buckets while backward runs.
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
  /// Maximum bucket sizes in bytes. The first bucket is smaller, because backward completes the last parameters first.
  std::int64_t bucket_bytes = 25 << 20, first_bucket_bytes = 1 << 20;
  /// Starts to sum a bucket as soon as backward has completed it; otherwise `finish` starts all sums.
  bool overlap = true;
  /// Uses shared memory where all ranks are on one machine.
  bool shared_memory = true;
  /// Dtype for transfer of float32 and float64 gradients: bfloat16 or float16. Undefined: not converted.
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;
  /// Sums low-rank approximations of gradients; cannot be combined with `reduce_dtype`.
  std::optional<PowerSGDOptions> powersgd = std::nullopt;
  /// Timeout of gradient sums; other collectives use the group's.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// State of PowerSGD between updates. The lists have one entry per parameter, undefined if it is not compressed.
struct PowerSGDState {
  std::int64_t iteration = 0;       ///< number of completed updates
  std::vector<at::Tensor> errors;   ///< of this rank, [rows, columns], without the loss scale
  std::vector<at::Tensor> factors;  ///< for the next update, [columns, rank]; the same on all ranks
};

/// Sums the gradients of parameters over all ranks. Owns the gradients' memory: after backward, `grad()` of a parameter
/// is a view of a bucket. Optimizers may set gradients to undefined; the next backward pass fills the buckets again.
///
/// A window is one or more backward passes; only the last one communicates. All ranks call `finish` equally often and
/// in the same order; their numbers of backward passes may differ, and a parameter may lack a gradient on some ranks.
/// All ranks receive the same sums: through shared memory in the order of one tree over the ranks, else in the order of
/// the backend. Do not change gradients between the last backward pass and `finish`.
///
/// For dense gradients on one device. Use it in one thread.
class Reducer {
 public:
  /// Called by all ranks. Parameters must agree in number, order, shape and dtype; those that do not require gradients
  /// are skipped.
  /// @throws DistributedError on all ranks when they differ; on this rank alone for parameters on several devices.
  Reducer(const std::vector<at::Tensor>& params, Group group, ReducerOptions options = {});
  /// Keeps the gradients of an open window, moved out of the buckets.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Returns true if `params` are this reducer's parameters and the same ones require gradients.
  bool matches_parameters(const std::vector<at::Tensor>& params) const;

  /// Returns true if sums of the open window have started.
  bool has_started() const;
  /// Called before each backward pass.
  /// @param closes  true for the window's last micro-batch: sums may start.
  void begin_backward(bool closes);
  /// Returns true if a parameter has no gradient in this window on this rank.
  bool has_missing_gradients() const;
  /// Returns true if a gradient arrived after its bucket's sum had started: this window has more backward passes than
  /// earlier ones.
  bool has_late_gradients() const;
  /// Ends the window: `grad()` of each parameter becomes the sum over all ranks, or undefined if no rank has a
  /// gradient. Waits for the other ranks and for the device.
  /// @param any_missing  true on all ranks if `has_missing_gradients` is true on any rank; `any_late` the same for
  /// `has_late_gradients`
  /// @throws DistributedError, and StateError when a gradient was changed while it was summed.
  void finish(bool any_missing, bool any_late);
  /// The same, with both flags exchanged between the ranks.
  void finish();
  /// Discards the gradients of an open window. If its sums have started, the next backward pass throws StateError,
  /// because other ranks wait for the sums.
  void drop_gradients();

  /// Returns the state of PowerSGD between windows, in parameter order; empty without PowerSGD.
  PowerSGDState powersgd_state() const;
  /// Loads the state; skips entries whose shapes differ. Called by all ranks with the same `iteration` and `factors`.
  void load_powersgd_state(const PowerSGDState& state);
  /// Sets the loss scale of the next window, a scalar on the gradients' device: PowerSGD stores unscaled errors. Called
  /// by all ranks with the same value, between windows.
  void set_loss_scale(const at::Tensor& scale);

  /// Stops the other ranks' waits for this rank's gradients; they throw `reason`.
  void abort(std::string_view reason);
  /// Sets the timeout of later sums. All ranks call it with the same value.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Describes the transport for logs: "shared memory", "collectives of the group (<why not shared memory>)", or
  /// "PowerSGD of rank 2 by " and one of these.
  std::string transport() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
