#include <data/source_claim.hpp>

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

// Never destroyed: loaders may be destroyed after other static objects.
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
                    " that no other loader is reading, got one in use", split,
                    "; create one for each loader, or read the other loader to its end or destroy it first");
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
