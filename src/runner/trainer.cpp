#include <danling/runner/trainer.hpp>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0 {

Trainer::~Trainer() {
  try {
    close();
  } catch (const std::exception& error) {
    logger().error(error.what());
  }
}

}  // namespace danling::inline v0
