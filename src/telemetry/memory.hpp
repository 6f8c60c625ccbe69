// host_memory(): the memory of this process.
#pragma once

namespace danling::inline v0 {

/// Memory in MiB; 0 if unknown.
struct HostMemory {
  double resident_mb = 0.0;  ///< resident now
  double peak_mb = 0.0;      ///< the peak since the process began
};

/// Reads /proc, which takes some microseconds.
HostMemory host_memory();

}  // namespace danling::inline v0
