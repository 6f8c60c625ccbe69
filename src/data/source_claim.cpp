#include "data/source_claim.hpp"

#include <mutex>
#include <unordered_set>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::data::detail {

namespace {

struct Claimed {
  std::mutex mutex;
  std::unordered_set<const void*> objects;
};

// Never destroyed: loaders may be destroyed after any other static object.
Claimed& claimed() {
  static auto* const all = new Claimed();
  return *all;
}

}  // namespace

bool SourceClaim::take(const void* object, std::string_view kind, std::string_view split) {
  if (object == object_) {
    return false;
  }
  const std::lock_guard lock(claimed().mutex);
  check<StateError>(claimed().objects.insert(object).second, "data.loader", "expected a ", kind,
                    " of its own, got one that another loader is reading", split,
                    "; give each loader its own, or read the other one to its end or destroy it first");
  object_ = object;
  return true;
}

void SourceClaim::release() {
  if (object_ != nullptr) {
    const std::lock_guard lock(claimed().mutex);
    claimed().objects.erase(std::exchange(object_, nullptr));
  }
}

}  // namespace danling::inline v0::data::detail
