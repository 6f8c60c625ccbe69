// Transfers values and gradients of sharded parameters through the collectives of a group.
#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_traffic.hpp>

namespace danling::inline v0::detail {
namespace {

/// Flat tensors, one per pack and rank: padded to equal sizes for gathers, of the ranks' sizes for reductions.
class GroupTraffic final : public ShardTraffic {
 public:
  explicit GroupTraffic(TrafficOptions options) : ShardTraffic(std::move(options)) {}

  std::string name() const override { return "collectives of the group"; }

  void start_gather(ShardUnit& unit) override {
    const at::NoGradGuard no_grad;
    const c10::InferenceMode normal(false);  // an evaluation may need the values first
    Gather& gather = gathers_[&unit];
    for (ShardUnit::Pack& pack : unit.packs()) {
      PackGather one;
      const at::Tensor mine = own_values(unit, pack);
      for (int rank = 0; rank < group().size(); ++rank) {
        one.parts.push_back(at::empty_like(mine));
      }
      count_gather(unit.size_of(pack.members, unit.layout().rank) * static_cast<std::int64_t>(mine.element_size()));
      one.work = group().start_all_gather(one.parts, mine);
      gather.push_back(std::move(one));
    }
  }

  void finish_gather(ShardUnit& unit) override {
    const at::NoGradGuard no_grad;
    const c10::InferenceMode normal(false);
    Gather gather = std::move(gathers_.at(&unit));
    gathers_.erase(&unit);
    if (!unit.layout().plain) {
      unit.allocate();
    }
    for (std::size_t at = 0; at < gather.size(); ++at) {
      gather[at].work.wait();
      for (std::int64_t rank = 0; rank < group().size(); ++rank) {
        fill(unit, unit.packs()[at], gather[at].parts[static_cast<std::size_t>(rank)], rank);
      }
      gather[at].parts.clear();
    }
  }

 private:
  struct PackGather {
    std::vector<at::Tensor> parts;
    Work work;
  };
  using Gather = std::vector<PackGather>;
  struct GroupReduction final : Reduction {
    std::vector<at::Tensor> parts;  // one per pack, of all ranks
    std::vector<Work> travelling;
  };

  static at::Tensor own_values(ShardUnit& unit, const ShardUnit::Pack& pack) {
    const at::Tensor& whole = unit.parameters()[pack.members.front()].whole;
    if (pack.rows.defined()) {
      return pack.rows.to(whole.device(), whole.scalar_type(), /*non_blocking=*/false);
    }
    const at::Tensor out = at::zeros({unit.longest(pack.members)}, whole.options().requires_grad(false));
    std::int64_t offset = 0;
    for (const std::size_t member : pack.members) {
      const at::Tensor rows = unit.parameters()[member].rows.detach();
      out.narrow(0, offset, rows.numel()).view(rows.sizes()).copy_(rows);
      offset += rows.numel();
    }
    return out;
  }

  void fill(ShardUnit& unit, const ShardUnit::Pack& pack, const at::Tensor& part, std::int64_t rank) const {
    if (unit.layout().plain && rank == unit.layout().rank) {
      return;
    }
    std::int64_t offset = 0;
    for (const std::size_t member : pack.members) {
      const ShardedParameter& parameter = unit.parameters()[member];
      // Not detach(): saved tensors would count the copy as a change. For a plain parameter it is a change.
      const at::Tensor whole = unit.layout().plain ? parameter.whole.detach() : parameter.whole.variable_data();
      at::Tensor to = take_rows(whole, unit.range(parameter, rank));
      to.copy_(part.narrow(0, offset, to.numel()).view(to.sizes()));
      offset += to.numel();
    }
  }

  // Concatenates the parts of all ranks; each ends with one number per parameter: whether this rank has a gradient.
  std::unique_ptr<Reduction> start_reduce(ShardUnit& unit, const std::vector<at::Tensor>& gradients) override {
    const c10::InferenceMode normal(false);
    auto out = std::make_unique<GroupReduction>();
    for (const ShardUnit::Pack& pack : unit.packs()) {
      if (pack.trained.empty()) {
        out->parts.emplace_back();
        out->travelling.emplace_back();
        continue;
      }
      const auto number = static_cast<std::int64_t>(pack.trained.size());
      std::vector<std::int64_t> sent;
      std::int64_t total = 0;
      for (std::int64_t rank = 0; rank < group().size(); ++rank) {
        sent.push_back(unit.size_of(pack.trained, rank) + number);
        total += sent.back();
      }
      const at::TensorOptions options =
          unit.parameters()[pack.trained.front()].whole.options().dtype(reduce_dtype(unit, pack)).requires_grad(false);
      const at::Tensor all = at::zeros({total}, options);
      std::int64_t offset = 0;
      for (std::int64_t rank = 0; rank < group().size(); ++rank) {
        std::int64_t flag = offset + sent[static_cast<std::size_t>(rank)] - number;
        for (const std::size_t member : pack.trained) {
          const ShardedParameter& parameter = unit.parameters()[member];
          const RowRange range = unit.range(parameter, rank);
          const std::int64_t count = range.count * row_size(parameter.whole);
          if (const at::Tensor& gradient = gradients[member]; gradient.defined()) {
            const at::Tensor from = take_rows(gradient.detach(), range);
            all.narrow(0, offset, count).view(from.sizes()).copy_(from);
            all.narrow(0, flag, 1).fill_(1);
          }
          offset += count;
          ++flag;
        }
        offset += number;
      }
      const std::int64_t mine = sent[static_cast<std::size_t>(group().rank())];
      count_reduce((total - mine) * static_cast<std::int64_t>(all.element_size()));
      out->parts.push_back(at::empty({group().size(), mine}, options));
      out->travelling.push_back(group().start_all_to_all_single(out->parts.back().view({-1}), all,
                                                                std::vector<std::int64_t>(sent.size(), mine), sent));
    }
    return out;
  }

  void sum(Reduction& reduction) override {
    const c10::InferenceMode normal(false);
    auto& own = static_cast<GroupReduction&>(reduction);
    for (std::size_t at = 0; at < own.parts.size(); ++at) {
      own.travelling[at].wait();
      if (!own.parts[at].defined()) {
        own.sums.emplace_back();
        continue;
      }
      const at::ScalarType dtype = sum_dtype(own.parts[at].scalar_type());
      std::vector<at::Tensor> parts;
      for (const at::Tensor& part : own.parts[at].unbind(0)) {
        parts.push_back(part.to(dtype));
      }
      own.sums.push_back(sum_along(parts, options().tree, 0, parts.size()));
      own.parts[at].reset();
    }
  }

  std::map<const ShardUnit*, Gather> gathers_;
};

}  // namespace

std::unique_ptr<ShardTraffic> make_group_traffic(TrafficOptions options) {
  return std::make_unique<GroupTraffic>(std::move(options));
}

}  // namespace danling::inline v0::detail
