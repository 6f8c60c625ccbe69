// MetricFamilies: numbers with names and labels, as text for Prometheus.
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

/// Pairs of names, valid as they are, and values of any text.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricFamilies {
 public:
  /// Declares a family; without effect when it is there. `name` ends with `unit`, if any, and without `_total`.
  void declare(const std::string& name, MetricType type, std::string_view unit, std::string_view help);
  /// Sets the sample of these labels in a declared family.
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

/// `name` with `_` for each byte that a metric's name cannot have.
std::string metric_name(std::string_view name);

/// The media type that suits a client's Accept header.
MetricFormat negotiate(std::string_view accept);
std::string_view media_type(MetricFormat format);

}  // namespace danling::inline v0::detail
