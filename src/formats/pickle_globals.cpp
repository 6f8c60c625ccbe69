#include "pickle_globals.hpp"

namespace danling::inline v0::formats::pickle {

std::optional<Global> find_global(std::string_view module, std::string_view name) {
  struct Named {
    std::string_view module;
    std::string_view name;
    Callable callable;
  };
  static constexpr Named kNamed[] = {
      {"collections", "OrderedDict", Callable::ordered_dict},
      {"torch._utils", "_rebuild_tensor_v2", Callable::rebuild_tensor_v2},
      {"torch._utils", "_rebuild_tensor_v3", Callable::rebuild_tensor_v3},
      {"torch._utils", "_rebuild_parameter", Callable::rebuild_parameter},
      {"torch", "Size", Callable::size},
      {"_codecs", "encode", Callable::encode},
      {"__builtin__", "bytearray", Callable::make_bytes},
      {"builtins", "bytearray", Callable::make_bytes},
      {"__builtin__", "bytes", Callable::make_bytes},  // how Python writes empty bytes in protocol 2
      {"torch.storage", "UntypedStorage", Callable::untyped_storage},
  };
  for (const auto& known : kNamed) {
    if (known.module == module && known.name == name) {
      return Global{known.callable};
    }
  }
  if (module == "torch" && !name.empty()) {
    for (std::size_t i = 0; i < dtype_count; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (dtype_name(dtype) == name) {
        return Global{Callable::dtype, dtype};
      }
      if (dtype_storage_class(dtype) == name) {
        return Global{Callable::typed_storage, dtype};
      }
    }
  }
  return std::nullopt;
}

}  // namespace danling::inline v0::formats::pickle
