// Transfers values and gradients of sharded parameters between the ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include <parallel/shard_unit.hpp>

namespace danling::inline v0::detail {

struct TrafficOptions {
  Group group, replicas;
  std::vector<Subtree> tree;  ///< tree along which the ranks of `group` are added
  bool along_tree = false;    ///< also adds replicas along a tree, in rank order
  bool shared_memory = true;
};

/// Bytes that this rank has sent to others, or that they have read from its memory.
struct TrafficBytes {
  std::int64_t gathered = 0, reduced = 0;
};

/// All ranks must call the same functions in the same order. Not thread-safe.
class ShardTraffic {
 public:
  /// Uses shared memory if all ranks are on one machine and the parameters are on the host, else the group. Every rank
  /// must call it.
  static std::unique_ptr<ShardTraffic> make(TrafficOptions options,
                                            const std::vector<std::shared_ptr<ShardUnit>>& units);
  virtual ~ShardTraffic() = default;

  /// "shared memory" or "collectives of the group", for logs.
  virtual std::string name() const = 0;
  /// Returns whether ranks synchronize at each gather, not only in `begin`.
  virtual bool meets_to_gather() const { return true; }
  /// If ranks do not synchronize at each gather: whether rows may have changed since the last begin(), so that all
  /// ranks must call it before the next gather.
  virtual bool must_begin() const { return false; }
  virtual void begin() {}
  /// Replaces begin() and end() on a rank that reads nothing.
  virtual void follow() {}
  /// Other ranks have read this rank's rows, which may then change. Every rank must call it.
  virtual void end() {}
  /// Starts to gather a unit that is not gathered.
  virtual void start_gather(ShardUnit& unit) = 0;
  /// Finishes start_gather: the unit is then gathered.
  virtual void finish_gather(ShardUnit& unit) = 0;
  /// The same into private memory of this rank, which may be written to.
  virtual void gather_own(ShardUnit& unit) { start_gather(unit), finish_gather(unit); }
  /// Ends the waits of other ranks with `reason`, if the group does not.
  virtual void abort(std::string_view reason) { static_cast<void>(reason); }

  /// Starts to sum gradients, one per parameter, undefined if there is none. Rows receive them in finish_reduces() or
  /// before.
  void reduce(ShardUnit& unit, std::vector<at::Tensor> gradients);
  void finish_reduces();

  const TrafficBytes& bytes() const { return bytes_; }

 protected:
  explicit ShardTraffic(TrafficOptions options) : options_(std::move(options)) {}

  /// A unit whose gradients are in flight. `sums`, one per pack, have the layout of ShardUnit::accept.
  struct Reduction {
    virtual ~Reduction() = default;
    ShardUnit* unit = nullptr;
    std::vector<bool> has = {};  ///< by parameter: whether this rank has a gradient
    std::vector<at::Tensor> sums = {};
    std::vector<Work> works = {};  ///< sums over replicas
  };
  virtual std::unique_ptr<Reduction> start_reduce(ShardUnit& unit, const std::vector<at::Tensor>& gradients) = 0;
  /// Waits for the gradients of the group's ranks.
  virtual void sum(Reduction& reduction) = 0;
  /// Returns whether `sum` would not wait.
  virtual bool is_ready(const Reduction&) { return false; }

  const Group& group() const { return options_.group; }
  const TrafficOptions& options() const { return options_; }
  void count_gather(std::int64_t own_bytes) { bytes_.gathered += own_bytes * (options_.group.size() - 1); }
  void count_reduce(std::int64_t bytes) { bytes_.reduced += bytes; }

 private:
  void sum_first();
  void accept_first();

  TrafficOptions options_;
  TrafficBytes bytes_;
  std::deque<std::unique_ptr<Reduction>> summing_, settling_;  // settling_: over replicas
};

/// The sum along a tree of the tensors of ranks first to last, without last. Undefined tensors count as zeros.
at::Tensor sum_along(const std::vector<at::Tensor>& tensors, const std::vector<Subtree>& tree, std::size_t first,
                     std::size_t last);

/// Null if shared memory is not available.
std::unique_ptr<ShardTraffic> make_shared_traffic(TrafficOptions options,
                                                  const std::vector<std::shared_ptr<ShardUnit>>& units);
std::unique_ptr<ShardTraffic> make_group_traffic(TrafficOptions options);

}  // namespace danling::inline v0::detail
