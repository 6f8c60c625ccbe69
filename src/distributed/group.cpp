#include <danling/distributed/group.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

struct Group::Impl {
  int rank = 0;
  int size = 1;
};

Group Group::connect(const ProcessIdentity& identity, const GroupOptions&) {
  check<DistributedError>(!identity.distributed(), "group.connect", "expected a world of one, got ",
                          identity.world_size, " processes");
  return Group();
}

int Group::rank() const { return impl_ == nullptr ? 0 : impl_->rank; }
int Group::size() const { return impl_ == nullptr ? 1 : impl_->size; }
void Group::all_reduce(at::Tensor&) const {}
std::vector<std::string> Group::all_gather(std::string_view bytes) const { return {std::string(bytes)}; }
std::vector<at::Tensor> Group::all_gather(const at::Tensor& rows) const { return {rows}; }
void Group::barrier() const {}

}  // namespace danling::inline v0
