// Options of GradScaler, for programs and configs.
#pragma once

#include <cstdint>
#include <optional>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::optim {

/// Unset options have the defaults of torch.amp.GradScaler.
struct GradScalerOptions {
  std::optional<double> init_scale = std::nullopt;             ///< 65536
  std::optional<double> growth_factor = std::nullopt;          ///< 2; above 1
  std::optional<double> backoff_factor = std::nullopt;         ///< 0.5; between 0 and 1
  std::optional<std::int64_t> growth_interval = std::nullopt;  ///< 2000 updates without an overflow

  void fields(Fields& f);
};

}  // namespace danling::inline v0::optim
