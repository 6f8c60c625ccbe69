#include <metrics/meter_exchange.hpp>

#include <algorithm>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>
#include <metrics/average_meter.hpp>
#include <metrics/compensated.hpp>
#include <metrics/rank_reports.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0::detail {

/// One rank's data for one name.
struct MeterExchange::Part {
  std::string name;
  bool any = false;  // whether a shape is known
  std::vector<std::int64_t> shape;
  std::int64_t n = 0;
  std::int64_t count = 0;
  at::Tensor batch_sum;
  at::Tensor sum;
  at::Tensor rest;  // rounding error of the sum
};

namespace {

void pack_tensor(Packer& packer, const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  packer.raw(host.const_data_ptr(), host.nbytes());
}

at::Tensor unpack_tensor(Unpacker& unpacker, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  const auto bytes = unpacker.raw(tensor.nbytes());
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

std::string MeterExchange::pack(const std::string& name, const AverageMeter& meter) {
  const std::int64_t n = meter.own_n();
  const std::int64_t count = meter.own_count();
  const bool any = count > 0 || meter.holds_tensors();
  Packer packer;
  packer.text(name);
  packer.number(std::int64_t{any});
  if (any) {
    const bool tensors = meter.holds_tensors();
    const at::Tensor sum = tensors ? meter.extra_->sum : at::scalar_tensor(meter.sum_, at::kDouble);
    packer.numbers(sum.sizes());
    packer.number(n);
    packer.number(count);
    // A last value without weight is often nan, which would survive multiplication by 0.
    pack_tensor(packer, n > 0 ? meter.last_tensor().mul(n) : at::zeros(sum.sizes()));
    pack_tensor(packer, sum);
    pack_tensor(packer, tensors ? meter.extra_->rest : at::scalar_tensor(meter.rest_, at::kDouble));
  }
  return packer.take();
}

std::vector<MeterExchange::Part> MeterExchange::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  std::vector<Part> parts;
  while (!unpacker.done()) {
    Part& part = parts.emplace_back();
    part.name = unpacker.text();
    part.any = unpacker.number() != 0;
    if (part.any) {
      part.shape = unpacker.numbers();
      part.n = unpacker.number();
      part.count = unpacker.number();
      part.batch_sum = unpack_tensor(unpacker, part.shape);
      part.sum = unpack_tensor(unpacker, part.shape);
      part.rest = unpack_tensor(unpacker, part.shape);
    }
  }
  return parts;
}

void MeterExchange::run(const Group& group, const Missing& missing) {
  if (group.alone()) {
    return;
  }
  const c10::InferenceMode normal(false);
  std::string mine;
  for (const auto& [name, meter] : meters_) {
    mine += pack(name, *meter);
  }
  std::vector<std::vector<Part>> ranks;
  for (const std::string& bytes : exchange_reports(group, std::string_view(where_).substr(0, where_.find('.')), mine)) {
    ranks.push_back(unpack(bytes));
  }
  std::vector<std::string> names;
  for (const auto& parts : ranks) {
    for (const Part& part : parts) {
      if (std::find(names.begin(), names.end(), part.name) == names.end()) {
        names.push_back(part.name);
      }
    }
  }
  if (missing == nullptr) {
    std::vector<std::string> lists;
    for (const auto& parts : ranks) {
      std::vector<std::string> sorted;
      for (const Part& part : parts) {
        sorted.push_back(part.name);
      }
      std::sort(sorted.begin(), sorted.end());
      lists.push_back("[" + join(sorted) + "]");
    }
    check_agreement<MetricError>(lists, where_, "the same metrics");
  }
  const auto find = [](const std::vector<Part>& parts, const std::string& name) {
    return std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.name == name; });
  };
  // Checks all before it changes any.
  for (const std::string& name : names) {
    std::vector<std::string> texts;
    for (const auto& parts : ranks) {
      const auto part = find(parts, name);
      texts.push_back(part == parts.end() || !part->any ? ""
                      : part->shape.empty()             ? "a scalar"
                                                        : "a tensor of shape " + shape_text(part->shape));
    }
    check_agreement<MetricError>(texts, where_,
                                 name.empty() ? "values alike" : concat("values of ", quote(name), " alike"));
  }
  for (const std::string& name : names) {
    combine(name, ranks, missing);
  }
}

void MeterExchange::combine(const std::string& name, const std::vector<std::vector<Part>>& ranks,
                            const Missing& missing) {
  auto total = std::make_shared<AverageMeter::Ranks>();
  at::Tensor batch_rest;
  at::Tensor rest;
  for (const auto& parts : ranks) {
    for (const Part& part : parts) {
      if (part.name != name || !part.any) {
        continue;
      }
      total->n += part.n;
      total->count += part.count;
      if (!total->sum.defined()) {
        total->batch_sum = part.batch_sum;
        batch_rest = at::zeros_like(part.batch_sum);
        total->sum = part.sum;
        rest = part.rest;
      } else {
        add_compensated(total->batch_sum, batch_rest, part.batch_sum);
        add_compensated(total->sum, rest, part.sum);
        rest.add_(part.rest);
      }
    }
  }
  if (total->sum.defined()) {
    total->batch_sum = whole_sum(total->batch_sum, batch_rest);
    total->sum = whole_sum(total->sum, rest);
  } else {
    total->batch_sum = total->sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble));
  }
  const auto own = std::find_if(meters_.begin(), meters_.end(), [&](const auto& entry) { return entry.first == name; });
  AverageMeter& meter = own != meters_.end() ? *own->second : missing(name);
  if (meter.extra_ == nullptr) {
    meter.extra_ = std::make_unique<AverageMeter::Extra>();
  } else if (meter.holds_tensors()) {
    const auto options = meter.extra_->sum.options();
    total->batch_sum = total->batch_sum.to(options);
    total->sum = total->sum.to(options);
  }
  meter.extra_->ranks = std::move(total);
}

}  // namespace danling::inline v0::detail
