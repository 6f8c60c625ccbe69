// Routes choices of tokens: queues of experts over all ranks, slots, and messages between ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::parallel::expert_routing {

// A choice is one of a token's `top_k` experts. Choices of a rank are counted by key: expert * top_k + index of the
// choice. An expert's queue has all first choices, by rank and token, then all second ones, so its order does not
// depend on the number of ranks.

struct Sizes {
  std::int64_t experts = 0, top_k = 0, capacity = 0;
  std::int64_t ranks = 1, rank = 0;
};

/// [top_k * tokens]: keys of the chosen experts, [top_k, tokens].
at::Tensor keys_of(const at::Tensor& chosen);
/// int64 [experts * top_k]: how often each key occurs.
at::Tensor count_keys(const at::Tensor& keys, const Sizes& sizes);

/// Positions of this rank's choices, on the device of the keys, computed without waiting.
struct Queues {
  at::Tensor starts;     ///< [experts * top_k]: position of this rank's first choice of each key
  at::Tensor positions;  ///< [top_k * tokens]: positions of the choices; from `capacity` on they are dropped
};
/// @param counts  [ranks, experts * top_k], of all ranks
Queues find_queues(const at::Tensor& keys, const at::Tensor& counts, const Sizes& sizes);

/// For one process: each choice's row in [experts * capacity]; one past the end if it is dropped.
at::Tensor slots_of(const at::Tensor& keys, const Queues& queues, const Sizes& sizes);

/// Messages of a rank. Rows sent to or received from a rank are ordered by key, then by position.
struct Messages {
  std::vector<std::int64_t> sent, received;  ///< rows to and from each rank
  at::Tensor rows;   ///< [top_k * tokens]: each choice's row among all sent rows; one past the end if it is dropped
  at::Tensor slots;  ///< [received rows]: their rows of [experts of this rank * capacity]
  std::int64_t count_sent() const;
};
/// @param counts  [ranks, experts * top_k]; waits for their device
Messages plan_messages(const at::Tensor& keys, const Queues& queues, const at::Tensor& counts, const Sizes& sizes);

}  // namespace danling::inline v0::parallel::expert_routing
