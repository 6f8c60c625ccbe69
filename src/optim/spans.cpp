#include <optim/spans.hpp>

#include <algorithm>

#include <ATen/Parallel.h>

#include <tensors/workers.hpp>

namespace danling::inline v0::optim::detail {
namespace {

constexpr std::int64_t chunk = 8192;  // elements: the unit of work of a thread
constexpr std::int64_t chunks_to_share = 4;

}  // namespace

void SpanList::clear() {
  items_.clear();
  constants_.clear();
}

std::size_t SpanList::add_constants(const double* values, std::size_t count) {
  const std::size_t first = constants_.size();
  constants_.insert(constants_.end(), values, values + count);
  return first;
}

void SpanList::add(rules::Kernel kernel, std::size_t constants, const rules::Span& span) {
  const std::int64_t before = items_.empty() ? 0 : items_.back().end;
  items_.push_back({rules::kernels().update[static_cast<std::size_t>(kernel)], constants, before + span.count, span});
}

void SpanList::run() {
  if (items_.empty()) {
    return;
  }
  for (Item& item : items_) {
    item.span.constants = constants_.data() + item.constants;
  }
  const std::int64_t total = items_.back().end;
  tensors::for_each_range((total + chunk - 1) / chunk, chunks_to_share, [&](std::int64_t begin, std::int64_t end) {
    // From the last element to the first.
    run_range(std::max<std::int64_t>(0, total - end * chunk), total - begin * chunk);
  });
}

void SpanList::run_range(std::int64_t begin, std::int64_t end) const {
  auto item = std::lower_bound(items_.begin(), items_.end(), end,
                               [](const Item& candidate, std::int64_t position) { return candidate.end < position; });
  while (end > begin) {
    const std::int64_t first = item->end - item->span.count;
    const std::int64_t from = std::max(begin, first);
    if (end > from) {
      item->update(item->span.part(from - first, end - from));
    }
    end = from;
    if (item == items_.begin()) {
      break;
    }
    --item;
  }
}

double sum_squares(const std::vector<at::Tensor>& tensors) {
  struct Piece {
    const void* values;
    rules::Type type;
    std::int64_t count;
  };
  thread_local std::vector<Piece> pieces;
  thread_local std::vector<double> sums;
  pieces.clear();
  for (const at::Tensor& tensor : tensors) {
    const rules::Type type = kernel_type(tensor.scalar_type());
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    const std::int64_t count = tensor.numel();
    for (std::int64_t at = 0; at < count; at += chunk) {
      pieces.push_back(
          {bytes + at * static_cast<std::int64_t>(rules::size_of(type)), type, std::min(chunk, count - at)});
    }
  }
  sums.assign(pieces.size(), 0.0);
  // Not thread_local inside the lambda: other threads run it too.
  const Piece* const all = pieces.data();
  double* const out = sums.data();
  const auto& kernels = rules::kernels();
  tensors::for_each_range(static_cast<std::int64_t>(pieces.size()), chunks_to_share,
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t i = begin; i < end; ++i) {
                              out[i] = kernels.sum_squares(all[i].values, all[i].type, all[i].count);
                            }
                          });
  double sum = 0;
  for (const double part : sums) {
    sum += part;
  }
  return sum;
}

void move_averages(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& values, double weight) {
  thread_local SpanList spans;
  spans.clear();
  const std::size_t constants = spans.add_constants(&weight, 1);
  for (std::size_t i = 0; i < averages.size(); ++i) {
    rules::Span span{};
    span.param = averages[i].mutable_data_ptr();
    span.grad = values[i].const_data_ptr();
    span.count = averages[i].numel();
    span.param_type = span.state_type = kernel_type(averages[i].scalar_type());
    span.grad_type = kernel_type(values[i].scalar_type());
    spans.add(rules::Kernel::average, constants, span);
  }
  spans.run();
}

}  // namespace danling::inline v0::optim::detail
