// How the values and gradients of sharded parameters travel between the ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include "parallel/shard_unit.hpp"

namespace danling::inline v0::detail {

struct TrafficOptions {
  Group group, replicas;
  std::vector<Subtree> tree;  ///< along which the ranks of `group` are added
  bool along_tree = false;    ///< whether replicas are added along a tree too, in the order of their ranks
  bool shared_memory = true;
};

/// Bytes that this rank has sent to others, or that they have read in its memory.
struct TrafficBytes {
  std::int64_t gathered = 0, reduced = 0;
};

/// All ranks call the same functions in the same order. For one thread at a time.
class ShardTraffic {
 public:
  /// Through shared memory where all ranks are on one machine and the parameters on the host, else through the group.
  /// Called by all ranks.
  static std::unique_ptr<ShardTraffic> make(TrafficOptions options,
                                            const std::vector<std::shared_ptr<ShardUnit>>& units);
  virtual ~ShardTraffic() = default;

  /// "shared memory" or "collectives of the group", for logs.
  virtual std::string name() const = 0;
  /// Whether ranks meet for each gather, and not only in `begin`.
  virtual bool meets_to_gather() const { return true; }
  /// Where ranks do not meet for each gather: whether rows may have changed since the last begin(), so that all ranks
  /// must call it before the next gather.
  virtual bool must_begin() const { return false; }
  virtual void begin() {}
  /// In place of begin() and end() of a rank that reads nothing.
  virtual void follow() {}
  /// Other ranks have read this rank's rows, which may change then. Called by all ranks.
  virtual void end() {}
  /// Begins to gather a unit that is not whole.
  virtual void start_gather(ShardUnit& unit) = 0;
  /// Ends what start_gather began: the unit is whole then.
  virtual void finish_gather(ShardUnit& unit) = 0;
  /// The same into memory of this rank alone, which may be written to.
  virtual void gather_own(ShardUnit& unit) { start_gather(unit), finish_gather(unit); }
  /// Ends the waits of the other ranks with `reason`, where the group does not.
  virtual void abort(std::string_view reason) { static_cast<void>(reason); }

  /// Begins to sum gradients, one for each parameter, undefined where there is none. Rows get them in finish_reduces()
  /// or before.
  void reduce(ShardUnit& unit, std::vector<at::Tensor> gradients);
  void finish_reduces();

  const TrafficBytes& bytes() const { return bytes_; }

 protected:
  explicit ShardTraffic(TrafficOptions options) : options_(std::move(options)) {}

  /// A unit whose gradients travel. `sums`, one for each pack, have what ShardUnit::accept wants.
  struct Reduction {
    virtual ~Reduction() = default;
    ShardUnit* unit = nullptr;
    std::vector<bool> has = {};  ///< by parameter: whether this rank has a gradient
    std::vector<at::Tensor> sums = {};
    std::vector<Work> works = {};  ///< of replicas
  };
  virtual std::unique_ptr<Reduction> start_reduce(ShardUnit& unit, const std::vector<at::Tensor>& gradients) = 0;
  /// Waits for the gradients of the group's ranks.
  virtual void sum(Reduction& reduction) = 0;
  /// Whether `sum` would not wait.
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
  std::deque<std::unique_ptr<Reduction>> summing_, settling_;  // the latter over replicas
};

/// The sum of tensors along a tree; that of ranks first to last, without last. Undefined ones count as zeros.
at::Tensor sum_along(const std::vector<at::Tensor>& tensors, const std::vector<Subtree>& tree, std::size_t first,
                     std::size_t last);

/// Null where there is no such memory.
std::unique_ptr<ShardTraffic> make_shared_traffic(TrafficOptions options,
                                                  const std::vector<std::shared_ptr<ShardUnit>>& units);
std::unique_ptr<ShardTraffic> make_group_traffic(TrafficOptions options);

}  // namespace danling::inline v0::detail
