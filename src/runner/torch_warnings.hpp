// Warnings of LibTorch during a loop: each place in LibTorch is logged once, since most would warn at every batch.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <c10/util/Exception.h>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

class TorchWarnings final : public c10::WarningHandler {
 public:
  /// Handles the warnings of this thread for its lifetime, unless the program has a handler of its own.
  class Scope {
   public:
    explicit Scope(TorchWarnings& warnings) {
      const c10::WarningHandler& current = *c10::WarningUtils::get_warning_handler();
      if (typeid(current) == typeid(c10::WarningHandler)) {
        guard_.emplace(&warnings);
      }
    }

   private:
    std::optional<c10::WarningUtils::WarningHandlerGuard> guard_;
  };

  explicit TorchWarnings(Logger& logger) : logger_(logger) {}

  /// Drops further warnings that begin with `text`, which must outlive this: the run has said it in better words.
  void drop(std::string_view text) { dropped_ = text; }

  void process(const c10::Warning& warning) override {
    if (!dropped_.empty() && warning.msg().starts_with(dropped_)) {
      return;
    }
    const c10::SourceLocation& place = warning.source_location();
    if (seen_.emplace(place.file, place.line).second) {
      logger_.warning(concat("[libtorch] ", warning.msg(), " (logged once)"));
    }
  }

 private:
  Logger& logger_;
  std::string_view dropped_;
  std::set<std::pair<std::string, std::uint32_t>> seen_;
};

}  // namespace danling::inline v0::detail
