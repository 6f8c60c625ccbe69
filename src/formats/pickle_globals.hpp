// The globals allowed in a pickle.
#pragma once

#include <optional>
#include <string_view>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats::pickle {

enum class Callable : std::uint8_t {
  ordered_dict,
  rebuild_tensor_v2,
  rebuild_tensor_v3,
  rebuild_parameter,
  size,
  encode,
  make_bytes,    // bytes or a bytearray from bytes
  make_list,     // a set or frozenset, in Python's order
  counter,       // a map from a map
  default_dict,  // an empty map; its default factory is ignored
  dict_class,    // a dict with attributes, which are dropped
  device,        // text such as `cuda:0`
  rebuild_parameter_with_state,
  rebuild_from_type,  // a tensor with attributes, which are dropped
  tensor_class,       // only named by rebuild_from_type
  array_reconstruct,  // NumPy's: an array that its state fills
  array_from_buffer,
  array_scalar,
  array_class,  // only named by array_reconstruct
  array_dtype,
  plain_type,       // only named by default_dict
  method_name,      // getattr of scheduler_class: the name, as text
  scheduler_class,  // only named by method_name
  null,             // a class whose only object represents None
  typed_storage,    // FloatStorage and the like: only named in the identity of a storage
  untyped_storage,
  dtype,
  record,  // a class of known fields: read_record_objects() returns its objects as maps
};

struct Global {
  Callable callable;
  DType dtype = DType::uint8;
  std::string_view name = {};  // name of the class, for a `record`
};

/// Returns the global `module.name`, or nullopt if it is not on the list.
std::optional<Global> find_global(std::string_view module, std::string_view name);

/// Returns a class of the metadata of torch.distributed.checkpoint, or nullopt.
std::optional<Global> find_record_class(std::string_view module, std::string_view name);

}  // namespace danling::inline v0::formats::pickle
