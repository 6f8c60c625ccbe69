// MetricFamilies: stores numbers with names and labels, and formats them for Prometheus.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danling::inline v0::detail {

enum class MetricType { gauge, counter };
enum class MetricFormat {
  openmetrics,  ///< OpenMetrics 1.0
  prometheus    ///< the older text format 0.0.4
};

/// Pairs of a valid name and any text.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricFamilies {
 public:
  /// Declares a family; does nothing if it exists. `name` ends with `unit`, if any, and must not end with `_total`.
  void declare(const std::string& name, MetricType type, std::string_view unit, std::string_view help);
  /// Sets the sample with these labels in a declared family.
  void set(const std::string& name, const MetricLabels& labels, double value);
  void remove(const std::string& name) { families_.erase(name); }
  bool empty() const { return families_.empty(); }

  std::string text(MetricFormat format) const;

 private:
  struct Family {
    MetricType type;
    std::string unit, help;
    std::map<std::string, double> samples;  // by the text of their labels
  };
  std::map<std::string, Family> families_;
};

/// Replaces each byte that is invalid in the name of a metric by `_`.
std::string metric_name(std::string_view name);

/// Chooses the format by a client's Accept header.
MetricFormat negotiate(std::string_view accept);
std::string_view media_type(MetricFormat format);

}  // namespace danling::inline v0::detail
