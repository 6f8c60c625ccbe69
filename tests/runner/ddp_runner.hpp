// Data parallel runners as ranks of a test's group, and comparison with one process.
#pragma once

#include <cmath>
#include <sstream>

#include "rank_runner.hpp"
#include "runner/data_parallel.hpp"
#include "runner/virtual_ranks.hpp"

namespace runner_test {

/// `Base` under `stack: ddp` over `group`; alone, one process.
template <class Base = TinyRunner>
class DdpRunner : public Base {
 public:
  DdpRunner(const TinyConfig& config, const dl::Group& group) : Base(config), group_(group) {}

  /// Parameters and the last results, exactly.
  std::string numbers() const {
    std::string out = "numbers:";
    const auto add = [&out](const dl::NamedTensors& state) {
      for (const auto& [name, value] : state) {
        const auto all = value.detach().to(at::kDouble).flatten();
        for (std::int64_t i = 0; i < all.numel(); ++i) {
          out += dl::detail::concat(" ", all[i].template item<double>());
        }
      }
    };
    add(this->model.named_state());
    for (const auto& [name, handle] : this->models) {
      add(handle.named_state());
    }
    if (const auto* last = this->results().latest()) {
      for (const auto& [split, numbers] : last->result) {
        if (const auto* nested = std::get_if<dl::Result>(&numbers)) {
          for (const char* name : {"loss", "lr", "accuracy"}) {
            out += nested->number(name) ? dl::detail::concat(" ", *nested->number(name)) : "";
          }
        }
      }
    }
    return out + dl::detail::concat(" ", this->state().train.global_step, " ", this->state().train.micro_step);
  }

 protected:
  void init_distributed() override {
    const std::chrono::seconds timeout(60);
    if (const auto shards = this->config().parallel.virtual_ranks) {
      this->set_parallelism(std::make_unique<dl::detail::VirtualRanks>(group_, *shards, this->config().ddp, timeout));
    } else if (group_.alone()) {
      this->set_parallelism(std::make_unique<dl::Parallelism>(dl::ProcessIdentity()));
    } else {
      this->set_parallelism(std::make_unique<dl::detail::DataParallel>(group_, this->config().ddp, timeout));
    }
  }

 private:
  dl::Group group_;
};

/// The largest difference relative to the size of the numbers around it: max |a - b| / max |b|, or infinity.
inline double relative_difference(const std::string& a, const std::string& b) {
  const auto read = [](const std::string& text) {
    std::istringstream in(text.substr(text.find(':') + 1));
    std::vector<double> out;
    for (double number = 0; in >> number;) {
      out.push_back(number);
    }
    return out;
  };
  const auto left = read(a), right = read(b);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    difference = std::max(difference, std::abs(left[i] - right[i]));
    size = std::max(size, std::abs(right[i]));
  }
  return left.size() == right.size() && !left.empty() && std::isfinite(difference) ? difference / size : HUGE_VAL;
}

}  // namespace runner_test
