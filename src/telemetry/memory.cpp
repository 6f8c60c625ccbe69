#include <telemetry/memory.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace danling::inline v0 {

HostMemory host_memory() {
  constexpr double mib = 1024.0 * 1024.0;
  HostMemory out;
  std::array<char, 128> text{};
  if (const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC); file >= 0) {
    const ssize_t got = ::read(file, text.data(), text.size() - 1);
    ::close(file);
    char* end = text.data();
    if (got > 0) {
      std::strtoull(end, &end, 10);  // skips the size of the address space
      out.resident_mb =
          static_cast<double>(std::strtoull(end, &end, 10)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / mib;
    }
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    out.peak_mb = static_cast<double>(usage.ru_maxrss) / 1024.0;
  }
  out.peak_mb = std::max(out.peak_mb, out.resident_mb);
  return out;
}

}  // namespace danling::inline v0
