// Memory of this process.
#pragma once

namespace danling::inline v0 {

/// In MiB; 0 where the system does not say.
struct HostMemory {
  double resident_mb = 0.0;  ///< in main memory now
  double peak_mb = 0.0;      ///< the most since the process began
};

/// Some microseconds: reads /proc.
HostMemory host_memory();

}  // namespace danling::inline v0
