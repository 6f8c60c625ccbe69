#include <tensors/nested/ragged.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

namespace danling::inline v0::detail {

Ragged::Ragged(std::int64_t batch, std::size_t rank, std::vector<std::int64_t> sizes)
    : sizes_(std::move(sizes)), offsets_{0}, longest_(rank, 0) {
  offsets_.reserve(static_cast<std::size_t>(batch) + 1);
  auto size = sizes_.begin();
  for (std::int64_t element = 0; element < batch; ++element) {
    std::int64_t rows = 1;
    for (std::int64_t& longest : longest_) {
      rows *= *size;
      longest = std::max(longest, *size++);
    }
    offsets_.push_back(offsets_.back() + rows);
  }
}

std::span<const std::int64_t> Ragged::sizes(std::int64_t element) const {
  return std::span(sizes_).subspan(static_cast<std::size_t>(element) * rank(), rank());
}

std::int64_t Ragged::padded_rows() const {
  std::int64_t rows = 1;
  for (const std::int64_t longest : longest_) {
    rows *= longest;
  }
  return rows;
}

at::Tensor Ragged::offsets_on(at::Device device) const { return index_on(Index::offsets, device); }
at::Tensor Ragged::starts_on(at::Device device) const { return index_on(Index::starts, device); }
at::Tensor Ragged::elements_on(at::Device device) const { return index_on(Index::elements, device); }
at::Tensor Ragged::padded_places_on(at::Device device) const { return index_on(Index::padded_places, device); }
at::Tensor Ragged::local_places_on(at::Device device) const { return index_on(Index::local_places, device); }

at::Tensor Ragged::index_on(Index kind, at::Device device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Tensor& found = indices_[{kind, {static_cast<int>(device.type()), device.index()}}];
  if (!found.defined()) {
    const c10::InferenceMode usable_everywhere(false);
    const at::Tensor host = make_index(kind);
    found = device.is_cpu() ? host : host.to(device);
  }
  return found;
}

std::shared_ptr<const Ragged> Ragged::related(std::int64_t number,
                                              const std::function<std::shared_ptr<const Ragged>()>& make) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (auto origin = origin_.lock(); origin != nullptr && number == origin_number_) {
    return origin;
  }
  const auto [found, is_new] = related_.try_emplace(number);
  if (is_new) {
    found->second = make();
  }
  return found->second;
}

void Ragged::set_origin(std::int64_t number, const std::shared_ptr<const Ragged>& origin) {
  origin_number_ = number;
  origin_ = origin;
}

at::Tensor Ragged::make_index(Index kind) const {
  if (kind == Index::starts) {
    std::vector<std::int32_t> starts;
    for (std::size_t at = 0; at < offsets_.size(); ++at) {
      if (at == 0 || offsets_[at] != offsets_[at - 1]) {
        starts.push_back(static_cast<std::int32_t>(offsets_[at]));
      }
    }
    return at::tensor(starts, at::kInt);
  }
  const bool per_row = kind != Index::offsets;
  at::Tensor out = at::empty({per_row ? rows() : batch() + 1}, at::kLong);
  std::int64_t* write = out.mutable_data_ptr<std::int64_t>();
  if (!per_row) {
    std::copy(offsets_.begin(), offsets_.end(), write);
    return out;
  }
  for (std::int64_t element = 0; element < batch(); ++element) {
    const auto own = sizes(element);
    const std::int64_t first = kind == Index::padded_places ? element * padded_rows() : 0;
    for (std::int64_t row = 0; row < rows_of(element); ++row) {
      if (kind == Index::elements) {
        *write++ = element;
        continue;
      }
      // From the last ragged dimension to the first: the row's coordinate times the stride in the padded element.
      std::int64_t place = first, rest = row, stride = 1;
      for (std::size_t dim = rank(); dim-- > 0;) {
        place += rest % own[dim] * stride;
        rest /= own[dim];
        stride *= longest_[dim];
      }
      *write++ = place;
    }
  }
  return out;
}

}  // namespace danling::inline v0::detail
