// Combines the meters of all ranks: all meters of a container in one exchange.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/distributed/group.hpp>
#include <danling/metrics/average_meter.hpp>

namespace danling::inline v0::detail {

class MeterExchange {
 public:
  /// `where` is the prefix of errors.
  explicit MeterExchange(std::string where) : where_(std::move(where)) {}

  void add(std::string name, AverageMeter& meter) { meters_.emplace_back(std::move(name), &meter); }

  /// Creates a meter that only other ranks have.
  using Missing = std::function<AverageMeter&(const std::string& name)>;

  /// Sets each meter to the values of its name over all ranks, added without rounding. Without `missing`, all ranks
  /// must have the same names.
  /// @throws MetricError on all ranks, changing nothing.
  void run(const Group& group, const Missing& missing = {});

 private:
  struct Part;
  static std::string pack(const std::string& name, const AverageMeter& meter);
  static std::vector<Part> unpack(std::string_view bytes);
  void combine(const std::string& name, const std::vector<std::vector<Part>>& ranks, const Missing& missing);

  std::string where_;
  std::vector<std::pair<std::string, AverageMeter*>> meters_;
};

}  // namespace danling::inline v0::detail
