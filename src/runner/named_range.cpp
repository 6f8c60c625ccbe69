#include <danling/runner/detail/named_range.hpp>

#include <memory>
#include <string_view>

#include <ATen/record_function.h>

namespace danling::inline v0::detail {

std::atomic<int> profilers_begun{0};

bool records_ranges() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value(); }

void NamedRange::begin(const char* name) {
  auto range = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (range->isActive()) {
    range->before(std::string_view(name));
  }
  range_ = range.release();
}

void NamedRange::end() noexcept { delete static_cast<at::RecordFunction*>(range_); }

}  // namespace danling::inline v0::detail
