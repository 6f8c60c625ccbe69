// Warnings of LibTorch in the thread of a loop: each is logged once, since most would come at every batch.
#pragma once

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <danling/core/format.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

class TorchWarnings final : public c10::WarningHandler {
 public:
  /// Handles the warnings of this thread for its lifetime, unless the program has a handler of its own.
  class Scope {
   public:
    explicit Scope(TorchWarnings& warnings) : warnings_(warnings), before_(c10::WarningUtils::get_warning_handler()) {
      const c10::WarningHandler& current = *before_;
      if (typeid(current) == typeid(c10::WarningHandler) || typeid(current) == typeid(TorchWarnings)) {
        c10::WarningUtils::set_warning_handler(&warnings_);
      }
    }
    ~Scope() {
      if (c10::WarningUtils::get_warning_handler() == &warnings_) {  // else the program has set one in the loop
        c10::WarningUtils::set_warning_handler(before_);
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TorchWarnings& warnings_;
    c10::WarningHandler* before_;
  };

  explicit TorchWarnings(Logger& logger) : logger_(logger) {}

  /// Drops LibTorch's warning about a loss of these tensors: the run has said it in better words.
  void drop_for(const at::Tensor& prediction, const at::Tensor& target) {
    dropped_ = without_digits(concat("Using a target size ([", join(target.sizes()),
                                     "]) that is different to the input size ([", join(prediction.sizes()), "])"));
  }

  void process(const c10::Warning& warning) override {
    std::string key = without_digits(warning.msg());  // sizes differ between batches
    if ((dropped_.empty() || !key.starts_with(dropped_)) && seen_.insert(std::move(key)).second) {
      const c10::WarningUtils::WarningHandlerGuard plain(nullptr);  // a sink that warns must not come back here
      logger_.warning(concat("[libtorch] ", warning.msg(), " (logged once)"));
    }
  }

 private:
  static std::string without_digits(std::string text) {
    text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; }),
               text.end());
    return text;
  }

  Logger& logger_;
  std::string dropped_;
  std::set<std::string> seen_;
};

}  // namespace danling::inline v0::detail
