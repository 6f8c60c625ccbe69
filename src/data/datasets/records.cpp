#include <data/datasets/records.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>

#include <tensors/dtypes.hpp>

namespace danling::inline v0::data {

namespace {

// Smaller records are one or two pages: prefetching costs as much as copying.
constexpr std::size_t min_prefetch = 4096;

std::size_t elements_of(std::span<const std::int64_t> sizes) {
  std::size_t out = 1;
  for (const std::int64_t size : sizes) {
    out *= static_cast<std::size_t>(size);
  }
  return out;
}

/// Copies record `index` of an array in Fortran order. `width` is a template argument, so that each element is one
/// move.
template <std::size_t width>
void copy_strided(const RecordArray& array, std::int64_t index, std::byte* out) {
  const std::span<const std::int64_t> inner = std::span(array.sizes).subspan(1);
  std::vector<std::size_t> strides(inner.size());
  auto stride = static_cast<std::size_t>(array.sizes[0]);
  for (std::size_t d = 0; d < inner.size(); ++d) {
    strides[d] = stride;
    stride *= static_cast<std::size_t>(inner[d]);
  }
  std::vector<std::int64_t> at(inner.size(), 0);
  auto element = static_cast<std::size_t>(index);
  const std::size_t count = elements_of(inner);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(out + i * width, array.bytes.data() + element * width, width);
    for (std::size_t d = inner.size(); d-- > 0;) {
      element += strides[d];
      if (++at[d] < inner[d]) {
        break;
      }
      element -= strides[d] * static_cast<std::size_t>(inner[d]);
      at[d] = 0;
    }
  }
}

void copy_record(const RecordArray& array, std::int64_t index, std::size_t width, std::size_t bytes, std::byte* out) {
  if (!array.fortran_order) {
    if (bytes > 0) {
      std::memcpy(out, array.bytes.data() + static_cast<std::size_t>(index) * bytes, bytes);
    }
    return;
  }
  switch (width) {
    case 1:
      return copy_strided<1>(array, index, out);
    case 2:
      return copy_strided<2>(array, index, out);
    case 4:
      return copy_strided<4>(array, index, out);
    case 8:
      return copy_strided<8>(array, index, out);
    default:
      return copy_strided<16>(array, index, out);
  }
}

template <std::size_t width>
void swap_each(std::span<std::byte> bytes) {
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

/// `width` is the size of one number: half of a complex one.
void swap_bytes(std::span<std::byte> bytes, std::size_t width) {
  switch (width) {
    case 2:
      return swap_each<2>(bytes);
    case 4:
      return swap_each<4>(bytes);
    default:
      return swap_each<8>(bytes);
  }
}

}  // namespace

void check_indices(std::span<const std::int64_t> indices, std::int64_t size, std::string_view where) {
  for (const std::int64_t index : indices) {
    check<DataError>(index >= 0 && index < size, where, "expected an index in [0, ", size, "), got ", index);
  }
}

std::string RecordArray::source() const {
  return concat("file ", quote(path), member.empty() ? "" : ", array ", member.empty() ? "" : quote(member));
}

at::Tensor RecordArray::gather(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> shape = sizes;
  shape[0] = static_cast<std::int64_t>(indices.size());
  at::Tensor out = at::empty(shape, to_scalar_type(dtype));
  const std::size_t width = formats::dtype_size(dtype);
  const std::size_t record = elements_of(std::span(sizes).subspan(1)) * width;
  if (file != nullptr && !fortran_order && record >= min_prefetch) {
    const auto start = static_cast<std::uint64_t>(bytes.data() - file->bytes().data());
    for (const std::int64_t index : indices) {
      file->prefetch(start + static_cast<std::uint64_t>(index) * record, record);
    }
  }
  auto* const begin = static_cast<std::byte*>(out.mutable_data_ptr());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    copy_record(*this, indices[i], width, record, begin + i * record);
  }
  const std::span<std::byte> copied(begin, indices.size() * record);
  if (swapped) {
    swap_bytes(copied, out.is_complex() ? width / 2 : width);
  }
  if (dtype == formats::DType::boolean) {
    // The file may contain any byte; a bool must be 0 or 1.
    std::transform(copied.begin(), copied.end(), copied.begin(),
                   [](std::byte byte) { return byte == std::byte{0} ? byte : std::byte{1}; });
  }
  return out;
}

RecordDataset::RecordDataset(std::string where, std::vector<RecordArray> arrays, std::string split)
    : where_(std::move(where)), arrays_(std::move(arrays)), split_(std::move(split)) {
  check<ConfigError>(!arrays_.empty() && arrays_.front().name == "input", where_, "expected an input, got none");
  Batch batch;  // throws for conflicting names
  std::vector<std::string> names;
  for (const RecordArray& array : arrays_) {
    check<DataError>(!array.sizes.empty(), where_,
                     "expected an array whose first dimension counts records, got a scalar (", array.source(), ")");
    const RecordArray& input = arrays_.front();
    check<DataError>(array.sizes.front() == input.sizes.front(), where_, "expected ", input.sizes.front(),
                     " records as in ", quote(input.member.empty() ? input.path : input.member), ", got ",
                     array.sizes.front(), " (", array.source(), ")");
    check<ConfigError>(!array.name.empty() && std::find(names.begin(), names.end(), array.name) == names.end(), where_,
                       "expected a name for each array, got ",
                       array.name.empty() ? "an empty one" : "one twice: ", quote(array.name));
    names.push_back(array.name);
    batch.set(array.name, at::empty({0}));
  }
}

Batch RecordDataset::get_batch(std::span<const std::int64_t> indices) {
  check_indices(indices, size(), where_);
  const formats::MappedFile* checked = nullptr;
  Batch batch;
  for (const RecordArray& array : arrays_) {
    if (array.file != nullptr && array.file.get() != checked) {
      array.file->check_size();
      checked = array.file.get();
    }
    batch.set(array.name, array.gather(indices));
  }
  return batch;
}

State RecordDataset::source_info(std::int64_t index) const {
  const RecordArray& input = arrays_.front();
  State::Map info = {{"file", input.path}, {"record", index}};
  if (!input.member.empty()) {
    info.set("array", input.member);
  }
  return info;
}

}  // namespace danling::inline v0::data
