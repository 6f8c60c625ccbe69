// Transfers values and gradients of sharded parameters through memory that processes of one machine share.
#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/strides.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/shared_memory.hpp>
#include <parallel/sharded_traffic.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t outboxes = 2;          // reductions in flight
constexpr std::int64_t sum_block = 1 << 14;  // elements that stay in the cache between two additions

std::size_t in_lines(std::size_t bytes) { return (bytes + cache_line - 1) / cache_line * cache_line; }

std::size_t bytes_as(const at::Tensor& tensor, at::ScalarType dtype) {
  return in_lines(static_cast<std::size_t>(tensor.numel()) * c10::elementSize(dtype));
}

/// The memory holds whole parameters once for all ranks, so that a gather copies nothing. A rank's rows are a part of
/// it if they have the dtype in which the model computes; otherwise each rank converts its rows into it. Plain
/// parameters, which a program may write to, are copied from it.
///
/// Two flags for the values; their number counts possible changes of the rows: `ready`, set after a rank's rows are
/// written, and `done`, set after it has read those of all. Two flags for the gradients; their number counts
/// reductions: `filled`, set after a rank has copied the others' gradients to its outbox, and `added`, set after it has
/// read theirs.
class SharedTraffic final : public ShardTraffic {
 public:
  SharedTraffic(TrafficOptions options, std::shared_ptr<SharedMemory> values, std::shared_ptr<SharedMemory> gradients)
      : ShardTraffic(std::move(options)), values_(std::move(values)), gradients_(std::move(gradients)) {
    for (const auto& memory : {values_, gradients_}) {
      memory->set_look([watch = GroupCall::watch_of(this->group())] {
        if (watch != nullptr && watch->failed()) {
          throw SharedMemory::Failure("a rank has failed");  // `wait` asks which
        }
      });
    }
  }

  static std::size_t value_bytes(const ShardUnit& unit) {
    std::size_t out = 0;
    for (const ShardedParameter& parameter : unit.parameters()) {
      out += bytes_as(parameter.whole, parameter.whole.scalar_type());
    }
    return out;
  }

  /// Begins with one byte per parameter: whether the rank has a gradient.
  static std::size_t outbox_bytes(ShardUnit& unit) {
    std::size_t out = in_lines(unit.parameters().size());
    for (const ShardUnit::Pack& pack : unit.packs()) {
      for (const std::size_t member : pack.trained) {
        out += bytes_as(unit.parameters()[member].whole, reduce_dtype(unit, pack));
      }
    }
    return out;
  }

  void place(const std::vector<std::shared_ptr<ShardUnit>>& units, std::size_t outbox) {
    const at::NoGradGuard no_grad;
    outbox_ = outbox;
    std::size_t offset = 0;
    for (const auto& unit : units) {
      std::vector<at::Tensor>& areas = areas_[unit.get()];
      for (ShardedParameter& parameter : unit->parameters()) {
        areas.push_back(tensor_at(values_->part(0) + offset, parameter.whole));
        offset += bytes_as(parameter.whole, parameter.whole.scalar_type());
      }
      for (ShardUnit::Pack& pack : unit->packs()) {
        if (!is_in_place(*unit, pack)) {
          continue;
        }
        for (const std::size_t member : pack.members) {
          ShardedParameter& parameter = unit->parameters()[member];
          // A separate version counter: a graph has saved the whole tensor.
          const at::Tensor rows = own_area(*unit, member).variable_data();
          rows.copy_(parameter.rows.detach());
          const bool trains = parameter.rows.requires_grad();
          parameter.rows = rows;
          parameter.rows.set_requires_grad(trains);
        }
        pack.rows.reset();
      }
      units_.push_back(unit.get());
    }
    has_changed_ = true;
  }

  std::string name() const override { return "shared memory"; }
  bool meets_to_gather() const override { return false; }

  bool must_begin() const override { return has_changed_; }

  void begin() override {
    if (!has_changed_) {
      return;
    }
    const at::NoGradGuard no_grad;
    const c10::InferenceMode normal(false);
    values_->set_timeout(group().timeout());
    gradients_->set_timeout(group().timeout());
    for (ShardUnit* unit : units_) {
      for (const ShardUnit::Pack& pack : unit->packs()) {
        if (!is_in_place(*unit, pack)) {
          for (const std::size_t member : pack.members) {
            own_area(*unit, member).copy_(unit->parameters()[member].rows.detach());
          }
        }
      }
    }
    has_changed_ = false;
    is_ready_ = false;
    values_->raise(ready, ++turn_);
  }

  void follow() override {
    begin();
    values_->raise(done, turn_);
    has_changed_ = true;
  }

  void end() override {
    if (ended_ != turn_) {
      values_->raise(done, turn_);
      wait(*values_, done, turn_, "end of a step");
      ended_ = turn_;
    }
    has_changed_ = true;
  }

  void start_gather(ShardUnit&) override {}

  void finish_gather(ShardUnit& unit) override {
    await_values();
    count_values(unit);
    if (unit.layout().plain) {
      copy_others(unit);
      return;
    }
    unit.allocate([&](std::size_t index) {
      const at::Tensor& area = areas_.at(&unit)[index];
      auto* const keep = new std::shared_ptr<SharedMemory>(values_);
      return c10::DataPtr(
          area.data_ptr(), keep, [](void* kept) { delete static_cast<std::shared_ptr<SharedMemory>*>(kept); },
          at::kCPU);
    });
  }

  void gather_own(ShardUnit& unit) override {
    if (unit.layout().plain) {
      finish_gather(unit);
      return;
    }
    const at::NoGradGuard no_grad;
    await_values();
    count_values(unit);
    unit.allocate();
    for (std::size_t index = 0; index < unit.parameters().size(); ++index) {
      unit.parameters()[index].whole.variable_data().copy_(areas_.at(&unit)[index]);
    }
  }

  void abort(std::string_view reason) override {
    values_->abort(reason);
    gradients_->abort(reason);
  }

 private:
  enum ValueFlag : std::size_t { ready, done };
  enum GradientFlag : std::size_t { filled, added };
  struct SharedReduction final : Reduction {
    std::uint32_t number = 0;
    std::vector<at::Tensor> own;  // per pack: the part for this rank's rows
  };

  at::Tensor tensor_at(std::byte* memory, const at::Tensor& like) const {
    // Strides with gaps would reach into the next area.
    const auto dense = c10::contiguous_strides(like.sizes());
    return at::from_blob(
        memory, like.sizes(), like.is_non_overlapping_and_dense() ? like.strides() : at::IntArrayRef(dense),
        [keep = values_](void*) {}, at::TensorOptions().dtype(like.scalar_type()));
  }

  static bool is_in_place(const ShardUnit& unit, const ShardUnit::Pack& pack) {
    const ShardedParameter& first = unit.parameters()[pack.members.front()];
    return !unit.layout().plain && !unit.layout().offload && first.whole.scalar_type() == first.parameter.scalar_type();
  }

  at::Tensor own_area(const ShardUnit& unit, std::size_t member) const {
    return take_rows(areas_.at(&unit)[member], unit.range(unit.parameters()[member], unit.layout().rank));
  }

  void wait(const SharedMemory& memory, std::size_t flag, std::uint32_t number, const char* what) const {
    if (memory.all_raised(flag, number)) {
      return;
    }
    const PendingScope pending(what);
    try {
      memory.await(flag, number, concat("the ", what));
    } catch (const SharedMemory::Failure& failure) {
      GroupCall::fail_in_memory(group(), what, failure);
    }
  }

  void await_values() {
    if (!is_ready_) {
      wait(*values_, ready, turn_, "rows of all ranks");
      is_ready_ = true;
    }
  }

  void count_values(ShardUnit& unit) {
    for (const ShardUnit::Pack& pack : unit.packs()) {
      count_gather(unit.size_of(pack.members, unit.layout().rank) *
                   static_cast<std::int64_t>(unit.parameters()[pack.members.front()].whole.element_size()));
    }
  }

  void copy_others(ShardUnit& unit) {
    const at::NoGradGuard no_grad;
    for (std::size_t index = 0; index < unit.parameters().size(); ++index) {
      const ShardedParameter& parameter = unit.parameters()[index];
      for (int rank = 0; rank < group().size(); ++rank) {
        if (rank != group().rank()) {
          const RowRange range = unit.range(parameter, rank);
          take_rows(parameter.whole.detach(), range).copy_(take_rows(areas_.at(&unit)[index], range));
        }
      }
    }
  }

  // ---- gradients ----------------------------------------------------------------------------------------------------

  /// The outbox of a rank for reduction number `number`.
  std::byte* outbox(int rank, std::uint32_t number) const {
    return gradients_->part(rank) + (number - 1) % outboxes * outbox_;
  }

  std::unique_ptr<Reduction> start_reduce(ShardUnit& unit, const std::vector<at::Tensor>& gradients) override {
    auto out = std::make_unique<SharedReduction>();
    out->number = ++reductions_;
    if (out->number > outboxes) {
      wait(*gradients_, added, static_cast<std::uint32_t>(out->number - outboxes), "sum of gradients");
    }
    std::byte* const box = outbox(group().rank(), out->number);
    std::size_t offset = in_lines(unit.parameters().size());
    for (std::size_t index = 0; index < gradients.size(); ++index) {
      box[index] = static_cast<std::byte>(gradients[index].defined());
    }
    for (const ShardUnit::Pack& pack : unit.packs()) {
      const auto number = static_cast<std::int64_t>(pack.trained.size());
      if (number == 0) {
        out->own.emplace_back();
        continue;
      }
      const at::ScalarType dtype = reduce_dtype(unit, pack);
      const at::Tensor own = at::empty({unit.size_of(pack.trained, unit.layout().rank) + number},
                                       at::TensorOptions().dtype(sum_dtype(dtype)));
      std::int64_t at = 0;
      for (const std::size_t member : pack.trained) {
        const ShardedParameter& parameter = unit.parameters()[member];
        const RowRange range = unit.range(parameter, unit.layout().rank);
        if (const at::Tensor& gradient = gradients[member]; gradient.defined()) {
          const at::Tensor all = gradient.detach();
          send(parameter, all, range, box + offset, dtype);
          const at::Tensor rows = take_rows(all, range);
          own.narrow(0, at, rows.numel()).view(rows.sizes()).copy_(dtype == own.scalar_type() ? rows : rows.to(dtype));
        }
        count_reduce((parameter.whole.numel() - range.count * row_size(parameter.whole)) *
                     static_cast<std::int64_t>(c10::elementSize(dtype)));
        at += range.count * row_size(parameter.whole);
        offset += bytes_as(parameter.whole, dtype);
      }
      out->own.push_back(own);
    }
    gradients_->raise(filled, out->number);
    return out;
  }

  /// Copies the rows of the other ranks: those before and after this rank's.
  static void send(const ShardedParameter& parameter, const at::Tensor& gradient, const RowRange& own,
                   std::byte* memory, at::ScalarType dtype) {
    const at::Tensor box = at::from_blob(memory, gradient.sizes(), at::TensorOptions().dtype(dtype));
    const std::int64_t behind = own.begin + own.count;
    for (const RowRange& range : {RowRange{0, own.begin}, RowRange{behind, rows_of(parameter.whole) - behind}}) {
      if (range.count > 0) {
        take_rows(box, range).copy_(take_rows(gradient, range));
      }
    }
  }

  bool is_ready(const Reduction& reduction) override {
    return gradients_->all_raised(filled, static_cast<const SharedReduction&>(reduction).number);
  }

  void sum(Reduction& reduction) override {
    auto& own = static_cast<SharedReduction&>(reduction);
    ShardUnit& unit = *own.unit;
    wait(*gradients_, filled, own.number, "sum of gradients");
    std::size_t offset = in_lines(unit.parameters().size());
    for (std::size_t index = 0; index < unit.packs().size(); ++index) {
      const ShardUnit::Pack& pack = unit.packs()[index];
      own.sums.push_back(own.own[index]);
      std::int64_t at = 0;
      const auto number = static_cast<std::int64_t>(pack.trained.size());
      for (std::int64_t trained = 0; trained < number; ++trained) {
        const std::size_t member = pack.trained[static_cast<std::size_t>(trained)];
        const ShardedParameter& parameter = unit.parameters()[member];
        const RowRange range = unit.range(parameter, unit.layout().rank);
        const std::int64_t count = range.count * row_size(parameter.whole);
        const at::Tensor rows = own.own[index].narrow(0, at, count);
        const std::int64_t having =
            add(own, member, rows, box_offset(offset, parameter, range, unit, pack), reduce_dtype(unit, pack));
        own.own[index].narrow(0, own.own[index].numel() - number + trained, 1).fill_(having);
        at += count;
        offset += bytes_as(parameter.whole, reduce_dtype(unit, pack));
      }
    }
    gradients_->raise(added, own.number);
  }

  static std::size_t box_offset(std::size_t offset, const ShardedParameter& parameter, const RowRange& range,
                                const ShardUnit& unit, const ShardUnit::Pack& pack) {
    return offset + static_cast<std::size_t>(range.begin * row_size(parameter.whole)) *
                        c10::elementSize(reduce_dtype(unit, pack));
  }

  /// Writes the sum over all ranks to `rows`, which holds this rank's values. Returns the number of ranks with a
  /// gradient.
  std::int64_t add(const SharedReduction& reduction, std::size_t member, const at::Tensor& rows, std::size_t offset,
                   at::ScalarType dtype) {
    std::vector<at::Tensor> of_rank;
    std::int64_t having = 0;
    for (int rank = 0; rank < group().size(); ++rank) {
      std::byte* const box = outbox(rank, reduction.number);
      of_rank.emplace_back();
      if (box[member] != std::byte{0}) {
        ++having;
        of_rank.back() =
            rank == group().rank() ? rows : at::from_blob(box + offset, rows.sizes(), at::TensorOptions().dtype(dtype));
      }
    }
    if (having == 0) {
      rows.zero_();  // replicas, whose groups may have gradients, add theirs to these rows
    }
    if (having == 0 || rows.numel() == 0) {
      return having;
    }
    // Works in blocks if there are nested sums, which would leave the cache.
    const std::int64_t block = group().size() == 2 ? rows.numel() : sum_block;
    for (std::int64_t begin = 0; begin < rows.numel(); begin += block) {
      const std::int64_t count = std::min(block, rows.numel() - begin);
      at::Tensor result = rows.narrow(0, begin, count);
      sum_of(of_rank, begin, count, 0, of_rank.size(), 0, &result);
    }
    return having;
  }

  /// The sum over ranks first to last, in `result` or scratch memory; undefined if none has a gradient.
  at::Tensor sum_of(const std::vector<at::Tensor>& of_rank, std::int64_t begin, std::int64_t count, std::size_t first,
                    std::size_t last, std::size_t slot, at::Tensor* result) {
    if (last - first == 1) {
      if (!of_rank[first].defined()) {
        return {};
      }
      const at::Tensor leaf = of_rank[first].narrow(0, begin, count);
      const at::ScalarType dtype = sum_dtype(leaf.scalar_type());
      return leaf.scalar_type() == dtype ? leaf : leaf.to(dtype);
    }
    const std::size_t middle = right_half(options().tree, first, last);
    const at::Tensor left = sum_of(of_rank, begin, count, first, middle, slot, nullptr);
    const at::Tensor right = sum_of(of_rank, begin, count, middle, last, slot + 1, nullptr);
    if (!left.defined() && !right.defined()) {
      return {};
    }
    at::Tensor out = result != nullptr ? *result : scratch(slot, left.defined() ? left : right);
    if (left.defined() && right.defined()) {
      return at::add_out(out, left, right);
    }
    // Adding zero turns -0 into 0.
    return out.copy_(left.defined() ? left : right).add_(0.0);
  }

  at::Tensor scratch(std::size_t slot, const at::Tensor& like) {
    scratch_.resize(std::max(scratch_.size(), slot + 1));
    if (!scratch_[slot].defined() || scratch_[slot].scalar_type() != like.scalar_type()) {
      scratch_[slot] = at::empty({sum_block}, like.options());
    }
    return scratch_[slot].narrow(0, 0, like.numel());
  }

  std::shared_ptr<SharedMemory> values_, gradients_;
  std::vector<ShardUnit*> units_;
  std::map<const ShardUnit*, std::vector<at::Tensor>> areas_;  // whole tensors of all ranks, by parameter
  std::size_t outbox_ = 0;                                     // size in bytes
  std::vector<at::Tensor> scratch_;
  std::uint32_t turn_ = 0, ended_ = 0, reductions_ = 0;
  bool has_changed_ = true;  // rows may have changed
  bool is_ready_ = false;    // the rows of all ranks are ready in this turn
};

}  // namespace

std::unique_ptr<ShardTraffic> make_shared_traffic(TrafficOptions options,
                                                  const std::vector<std::shared_ptr<ShardUnit>>& units) {
  std::size_t values = 0, outbox = 0;
  for (const auto& unit : units) {
    values += SharedTraffic::value_bytes(*unit);
    outbox = std::max(outbox, SharedTraffic::outbox_bytes(*unit));
  }
  const auto ranks = static_cast<std::size_t>(options.group.size());
  auto value_memory = SharedMemory::create(options.group, {.bytes = (values + ranks - 1) / ranks, .flags = 2});
  if (value_memory == nullptr) {
    return nullptr;
  }
  auto gradient_memory = SharedMemory::create(options.group, {.bytes = outboxes * outbox, .flags = 2});
  if (gradient_memory == nullptr) {
    return nullptr;
  }
  auto out = std::make_unique<SharedTraffic>(std::move(options), std::move(value_memory), std::move(gradient_memory));
  out->place(units, outbox);
  return out;
}

}  // namespace danling::inline v0::detail
