#include <metrics/meter_exchange.hpp>

#include <algorithm>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>
#include <metrics/average_meter.hpp>
#include <metrics/meter_part.hpp>
#include <metrics/rank_reports.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0::detail {

struct MeterExchange::Part {
  std::string name;
  MeterPart part;
};

std::string MeterExchange::pack(const std::string& name, const AverageMeter& meter) {
  Packer packer;
  packer.text(name);
  meter.own_part().pack(packer);
  return packer.take();
}

std::vector<MeterExchange::Part> MeterExchange::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  std::vector<Part> parts;
  while (!unpacker.done()) {
    std::string name = unpacker.text();
    parts.push_back({std::move(name), MeterPart::unpack(unpacker)});
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
  // Checks all meters before changing any.
  for (const std::string& name : names) {
    std::vector<std::string> texts;
    for (const auto& parts : ranks) {
      const auto part = find(parts, name);
      texts.push_back(part == parts.end() ? "" : part->part.form());
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
  std::vector<MeterPart> parts;
  for (const auto& of_rank : ranks) {
    for (const Part& part : of_rank) {
      if (part.name == name) {
        parts.push_back(part.part);
      }
    }
  }
  const MeterPart whole = combined(parts);
  const auto own = std::find_if(meters_.begin(), meters_.end(), [&](const auto& entry) { return entry.first == name; });
  AverageMeter& meter = own != meters_.end() ? *own->second : missing(name);
  const auto options = meter.holds_tensors() ? meter.extra_->sum.options() : at::TensorOptions().dtype(at::kDouble);
  auto total = std::make_shared<AverageMeter::Ranks>();
  total->n = whole.n;
  total->count = whole.count;
  total->sum = whole.any() ? whole.sum.to(options) : at::zeros({}, options);
  total->batch = whole.any() ? whole.batch.to(options) : at::full({}, AverageMeter::nan, options);
  meter.extra().ranks = std::move(total);
}

}  // namespace danling::inline v0::detail
