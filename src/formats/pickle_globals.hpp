// The globals that a pickle may name.
#pragma once

#include <optional>
#include <string_view>

#include <danling/formats/tensor_record.hpp>

namespace danling::inline v0::formats::pickle {

enum class Callable : std::uint8_t {
  ordered_dict,
  rebuild_tensor_v2,
  rebuild_tensor_v3,
  rebuild_parameter,
  size,
  encode,
  make_bytes,     // bytes or a bytearray from bytes
  typed_storage,  // FloatStorage and the like: only named in the identity of a storage
  untyped_storage,
  dtype,
};

struct Global {
  Callable callable;
  DType dtype = DType::uint8;
};

/// What `module.name` stands for, or nothing when it is not on the list.
std::optional<Global> find_global(std::string_view module, std::string_view name);

}  // namespace danling::inline v0::formats::pickle
