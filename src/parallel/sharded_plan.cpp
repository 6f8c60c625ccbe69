#include <danling/parallel/sharded_plan.hpp>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_parameters.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

/// Bytes of a unit on rank 0.
struct UnitBytes {
  std::int64_t rows = 0;       ///< padded to the longest
  std::int64_t own = 0;        ///< trained rows, in the dtype of the optimizer
  std::int64_t whole = 0;      ///< in the dtype in which operators compute
  std::int64_t parts = 0;      ///< received by a gather
  std::int64_t converted = 0;  ///< rows in the dtype in which they are sent, if it differs
  std::int64_t packet = 0;     ///< sent to each other rank
  std::int64_t gradients = 0;  ///< of whole parameters
  std::int64_t sent = 0;       ///< buffer of sent gradients
  std::int64_t received = 0;
  std::int64_t to_others = 0;  ///< part of `sent` that goes to other ranks
  std::int64_t sum = 0;        ///< gradients of this rank's rows
};

UnitBytes bytes_of(ShardUnit& unit, bool shared) {
  UnitBytes out;
  const std::int64_t ranks = unit.layout().split.ranks();
  for (const ShardUnit::Pack& pack : unit.packs()) {
    const ShardedParameter& first = unit.parameters()[pack.members.front()];
    const auto size = [](at::ScalarType dtype) { return static_cast<std::int64_t>(c10::elementSize(dtype)); };
    const std::int64_t row_bytes = size(first.parameter.scalar_type()), bytes = size(first.whole.scalar_type());
    const std::int64_t gradient_bytes = size(reduce_dtype(unit, pack));
    const std::int64_t sum_bytes = size(sum_dtype(reduce_dtype(unit, pack)));
    const std::int64_t flags = shared || pack.trained.empty() ? 0 : static_cast<std::int64_t>(pack.trained.size());
    std::int64_t all = 0, trained = 0;
    for (const std::size_t member : pack.members) {
      all += unit.parameters()[member].whole.numel();
    }
    for (const std::size_t member : pack.trained) {
      trained += unit.parameters()[member].whole.numel();
    }
    const std::int64_t longest = unit.longest(pack.members), own = unit.size_of(pack.trained, 0);
    out.rows += longest * row_bytes;
    out.own += own * row_bytes;
    out.whole += all * bytes;
    out.parts += ranks * longest * bytes;
    out.converted += bytes != row_bytes || unit.layout().plain ? longest * bytes : 0;
    out.packet += unit.size_of(pack.members, 0) * bytes;
    out.gradients += trained * bytes;
    out.sent += (trained + ranks * flags) * gradient_bytes;
    out.received += ranks * (own + flags) * gradient_bytes;
    out.to_others += (trained - own + (ranks - 1) * flags) * gradient_bytes;
    out.sum += (own + flags) * sum_bytes;
  }
  return out;
}

/// Simulates the steps of ShardedParameters and ShardTraffic, counting bytes.
class Play {
 public:
  Play(std::vector<UnitBytes> units, const ShardOptions& options, const ShardPlanOptions& plan, std::int64_t ranks,
       bool shared)
      : units_(std::move(units)), options_(options), plan_options_(plan), ranks_(ranks), shared_(shared) {
    plan_.ranks = ranks;
    std::int64_t outbox = 0;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const UnitBytes& bytes = units_[unit];
      plan_.parameters += is_plain() ? bytes.whole : shared ? bytes.packet : bytes.rows;
      if (shared && (is_plain() || bytes.converted > 0)) {  // each rank's part of the shared memory
        plan_.parameters += is_plain() ? bytes.packet : bytes.rows;
      }
      plan_.optimizer += plan.state_per_value * bytes.own;
      plan_.gradients += bytes.own;
      outbox = std::max(outbox, bytes.to_others);
      if (unit == 0 && bytes.whole == 0) {
        continue;
      }
      used_.push_back(unit);
    }
    add(plan_.parameters + plan_.optimizer + (shared && ranks > 1 ? 2 * outbox : 0));
  }

  ShardPlan run() {
    for (int window = 0; window < 2; ++window) {  // the first window prefetches nothing
      plan_.gathered = plan_.reduced = 0;
      for (std::int64_t batch = 0; batch < plan_options_.micro_batches; ++batch) {
        const bool sums = plan_options_.reduces_each || batch + 1 == plan_options_.micro_batches;
        pass(sums && options_.stage > 1);
      }
      finish();
      add(-std::exchange(row_gradients_, 0));
      update();
    }
    return plan_;
  }

 private:
  bool is_plain() const { return options_.stage < 3 || (ranks_ == 1 && !options_.offload && !casts()); }
  bool casts() const { return options_.mixed_precision.param_dtype != at::ScalarType::Undefined; }
  bool moves() const { return ranks_ > 1 || !is_plain() || plan_options_.replicas > 1; }
  void add(std::int64_t bytes) {
    live_ += bytes;
    plan_.peak = std::max(plan_.peak, live_);
  }

  void start(std::size_t unit) {
    if (whole_.contains(unit) || !started_.insert(unit).second) {
      return;
    }
    plan_.gathered += units_[unit].packet * (ranks_ - 1);
    add(shared_ ? 0 : units_[unit].parts + units_[unit].converted);
  }
  void end_start(std::size_t unit) {
    started_.erase(unit);
    whole_.insert(unit);
    if (!shared_) {
      add(is_plain() ? 0 : units_[unit].whole);
      add(-units_[unit].parts - units_[unit].converted);
    }
  }
  void release(std::size_t unit) {
    if (whole_.erase(unit) > 0 && !shared_ && !is_plain()) {
      add(-units_[unit].whole);
    }
  }
  void use(std::size_t unit) {
    if (is_plain()) {
      return;
    }
    if (unit != 0 && in_use_ != unit) {
      if (in_use_ != 0 && options_.reshard_after_forward) {
        release(in_use_);
      }
      in_use_ = unit;
    }
    if (whole_.contains(unit)) {
      return;
    }
    gathers_.push_back(unit);
    start(unit);
    for (std::size_t next = gathers_.size();
         next < std::min(gathers_.size() + static_cast<std::size_t>(options_.prefetch), before_.size()); ++next) {
      start(before_[next]);
    }
    end_start(unit);
  }

  void pass(bool sums) {
    gathers_.clear();
    for (const std::size_t unit : used_) {
      use(unit);
    }
    for (auto unit = used_.rbegin(); unit != used_.rend(); ++unit) {
      use(*unit);
      if (!has_gradients_.contains(*unit)) {
        add(units_[*unit].gradients);
        has_gradients_.insert(*unit);
      } else {  // a new gradient is added to that of earlier batches
        add(units_[*unit].gradients);
        add(-units_[*unit].gradients);
      }
      if (sums && moves()) {
        reduce(*unit);
      }
    }
    for (const std::size_t unit : used_) {
      release(unit);
    }
    in_use_ = 0;
    before_ = gathers_;
  }

  void reduce(std::size_t unit) {
    while (summing_.size() >= 2) {
      sum_first();
    }
    while (settling_.size() >= 2) {
      accept_first();
    }
    const UnitBytes& bytes = units_[unit];
    plan_.reduced += bytes.to_others;
    add(shared_ ? bytes.sum : bytes.sent + bytes.received);
    summing_.push_back(unit);
    add(-bytes.gradients);
    has_gradients_.erase(unit);
    release(unit);
    in_use_ = in_use_ == unit ? 0 : in_use_;
  }
  void sum_first() {
    const UnitBytes& bytes = units_[summing_.front()];
    plan_.reduced += 2 * bytes.sum * (plan_options_.replicas - 1) / plan_options_.replicas;
    if (!shared_) {
      add(-bytes.sent);
      std::int64_t sums = 1;  // number of partial sums, reduced to one
      for (std::int64_t ranks = ranks_; ranks > 2; ranks = (ranks + 1) / 2) {
        ++sums;
      }
      add(ranks_ > 1 ? sums * bytes.sum : 0);
      add(-bytes.received + (ranks_ > 1 ? (1 - sums) * bytes.sum : bytes.sum));
    }
    settling_.push_back(summing_.front());
    summing_.pop_front();
  }
  void accept_first() {
    const std::size_t unit = settling_.front();
    settling_.pop_front();
    if (has_row_gradients_.insert(unit).second) {
      row_gradients_ += units_[unit].sum;
    } else {
      add(-units_[unit].sum);
    }
  }
  void finish() {
    for (auto unit = used_.rbegin(); unit != used_.rend(); ++unit) {
      if (has_gradients_.contains(*unit) && moves()) {
        reduce(*unit);
      }
    }
    while (!summing_.empty()) {
      sum_first();
    }
    while (!settling_.empty()) {
      accept_first();
    }
    has_row_gradients_.clear();
    for (const std::size_t unit : std::exchange(has_gradients_, {})) {
      add(-units_[unit].gradients);
    }
  }
  // With stage 1 and 2, gathers all units after the update.
  void update() {
    if (!is_plain() || ranks_ == 1) {
      return;
    }
    for (std::size_t at = 0; at < used_.size(); ++at) {
      for (std::size_t next = at; next < std::min(at + 1 + static_cast<std::size_t>(options_.prefetch), used_.size());
           ++next) {
        start(used_[next]);
      }
      end_start(used_[at]);
    }
    whole_.clear();
  }

  std::vector<UnitBytes> units_;
  const ShardOptions& options_;
  const ShardPlanOptions& plan_options_;
  std::int64_t ranks_;
  bool shared_;
  ShardPlan plan_;
  std::int64_t live_ = 0, row_gradients_ = 0;
  std::vector<std::size_t> used_, gathers_, before_;
  std::size_t in_use_ = 0;
  std::set<std::size_t> whole_, started_, has_gradients_, has_row_gradients_;
  std::deque<std::size_t> summing_, settling_;
};

}  // namespace
}  // namespace detail

ShardPlan plan_shards(torch::nn::Module& module, std::int64_t ranks, const ShardOptions& options,
                      const ShardPlanOptions& plan) {
  static constexpr std::string_view where = "parallel.plan_shards";
  detail::check_options(options);
  check<ConfigError>(ranks >= 1 && plan.replicas >= 1 && plan.micro_batches >= 1, where,
                     "expected 1 or more ranks, replicas and micro-batches, got ", ranks, ", ", plan.replicas, " and ",
                     plan.micro_batches);
  check<ConfigError>(plan.state_per_value >= 0, where, "expected a state_per_value of 0 or more, got ",
                     plan.state_per_value);
  check<ConfigError>(options.replicas.alone() && options.virtual_ranks == 0, where,
                     "expected options without a group of replicas and virtual ranks; ShardPlanOptions::replicas is "
                     "their number");
  const bool shared = options.shared_memory && ranks > 1;
  detail::ShardLayout layout;
  layout.split = detail::RowSplit(ranks);
  layout.plain = options.stage < 3;
  layout.param_dtype = options.mixed_precision.param_dtype;
  layout.reduce_dtype = options.mixed_precision.reduce_dtype;
  std::vector<detail::UnitBytes> units;
  for (const detail::UnitParameters& unit : detail::find_units(module, options.units)) {
    detail::UnitParameters sizes = unit;
    for (auto& [name, parameter] : sizes.parameters) {  // sizes only, without memory
      parameter = parameter.detach().to(at::kMeta).set_requires_grad(parameter.requires_grad());
    }
    detail::ShardUnit planned(sizes.name, sizes.parameters, layout);
    units.push_back(detail::bytes_of(planned, shared));
  }
  return detail::Play(std::move(units), options, plan, ranks, shared).run();
}

std::string ShardPlan::text() const {
  const auto size = [](std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); };
  return concat("each of ", ranks, " ranks: parameters ", size(parameters), ", optimizer ", size(optimizer),
                ", gradients ", size(gradients), ", peak ", size(peak), "; sent in a window: ", size(gathered),
                " of parameters, ", size(reduced), " of gradients");
}

}  // namespace danling::inline v0
