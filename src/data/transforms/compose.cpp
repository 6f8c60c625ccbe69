#include <danling/data/transforms/compose.hpp>

namespace danling::inline v0::data::transforms {

namespace {

// Constants folded into keys have this bit; record indices, positions and draws do not.
constexpr std::uint64_t no_number = std::uint64_t{1} << 63;

std::uint64_t constant_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash | no_number;
}

}  // namespace

Keys::Keys(const BatchInfo& info, std::string_view name)
    : info_(&info), constant_(constant_of(name)), epoch_key_(info.epoch_key.fold_in(constant_)) {}

Random Keys::random(std::size_t i) const {
  return Random(info_->sample_keys.empty() ? epoch_key_.fold_in(static_cast<std::uint64_t>(info_->indices[i]))
                                           : info_->sample_keys[i].fold_in(constant_));
}

Random Keys::batch_random() const { return Random(info_->batch_key.fold_in(constant_)); }

namespace detail {

void set_keys(BatchInfo& out, const BatchInfo& info, std::size_t place) {
  const std::uint64_t constant = no_number | place;
  out.epoch_key = info.epoch_key.fold_in(constant);
  out.batch_key = info.batch_key.fold_in(constant);
  for (std::size_t i = 0; i < info.sample_keys.size(); ++i) {
    out.sample_keys[i] = info.sample_keys[i].fold_in(constant);
  }
}

}  // namespace detail

}  // namespace danling::inline v0::data::transforms
