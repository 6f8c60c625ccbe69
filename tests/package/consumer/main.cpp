// Uses a constant of danling, a symbol of LibTorch, and an error that crosses the border of the library.
#include <cstdio>

#include <c10/core/DeviceType.h>

#include <danling/core/error.hpp>
#include <danling/formats/idx.hpp>
#include <danling/version.hpp>

int main() {
  std::printf("danling %s on %s\n", danling::version, c10::DeviceTypeName(c10::DeviceType::CPU, true).c_str());
  try {
    danling::formats::read_idx("missing.idx");
  } catch (const danling::DataError&) {
    std::puts("caught danling::DataError");
    return 0;
  }
  return 1;
}
