#include <formats/pickle_globals.hpp>

namespace danling::inline v0::formats::pickle {

std::optional<Global> find_global(std::string_view module, std::string_view name) {
  struct Named {
    std::string_view module;
    std::string_view name;
    Callable callable;
  };
  // Supported Python globals. The reader calls none of them; it constructs each value itself.
  static constexpr Named named[] = {
      // torch.save of tensors, state dicts, parameters and buffers
      {"collections", "OrderedDict", Callable::ordered_dict},
      {"torch._utils", "_rebuild_tensor_v2", Callable::rebuild_tensor_v2},
      {"torch._utils", "_rebuild_tensor_v3", Callable::rebuild_tensor_v3},
      {"torch._utils", "_rebuild_parameter", Callable::rebuild_parameter},
      {"torch._utils", "_rebuild_parameter_with_state", Callable::rebuild_parameter_with_state},
      {"torch._tensor", "_rebuild_from_type_v2", Callable::rebuild_from_type},
      {"torch", "Tensor", Callable::tensor_class},
      {"torch.nn.parameter", "Parameter", Callable::tensor_class},
      {"torch.storage", "UntypedStorage", Callable::untyped_storage},
      {"torch", "Size", Callable::size},
      {"torch", "device", Callable::device},
      // bytes, bytearrays and sets in protocol 2; containers in metrics and samplers
      {"_codecs", "encode", Callable::encode},
      {"__builtin__", "bytearray", Callable::make_bytes},
      {"builtins", "bytearray", Callable::make_bytes},
      {"__builtin__", "bytes", Callable::make_bytes},
      {"__builtin__", "set", Callable::make_list},
      {"builtins", "set", Callable::make_list},
      {"__builtin__", "frozenset", Callable::make_list},
      {"builtins", "frozenset", Callable::make_list},
      {"collections", "Counter", Callable::counter},
      {"collections", "defaultdict", Callable::default_dict},
      {"__builtin__", "list", Callable::plain_type},
      {"builtins", "list", Callable::plain_type},
      {"__builtin__", "dict", Callable::plain_type},
      {"builtins", "dict", Callable::plain_type},
      {"__builtin__", "int", Callable::plain_type},
      {"builtins", "int", Callable::plain_type},
      {"__builtin__", "float", Callable::plain_type},
      {"builtins", "float", Callable::plain_type},
      // NumPy's random state in DanLing's checkpoints, and NumPy numbers; names before and since NumPy 2
      {"numpy.core.multiarray", "_reconstruct", Callable::array_reconstruct},
      {"numpy._core.multiarray", "_reconstruct", Callable::array_reconstruct},
      {"numpy.core.multiarray", "scalar", Callable::array_scalar},
      {"numpy._core.multiarray", "scalar", Callable::array_scalar},
      {"numpy.core.numeric", "_frombuffer", Callable::array_from_buffer},
      {"numpy._core.numeric", "_frombuffer", Callable::array_from_buffer},
      {"numpy", "ndarray", Callable::array_class},
      {"numpy", "dtype", Callable::array_dtype},
      // the strategies in the state of DanLing's scheduler: methods by name
      {"__builtin__", "getattr", Callable::method_name},
      {"builtins", "getattr", Callable::method_name},
      {"danling.optim.lr_scheduler.lr_scheduler", "LRScheduler", Callable::scheduler_class},
      // DanLing's configs, pickled directly
      {"chanfig.flat_dict", "FlatDict", Callable::dict_class},
      {"chanfig.default_dict", "DefaultDict", Callable::dict_class},
      {"chanfig.nested_dict", "NestedDict", Callable::dict_class},
      {"chanfig.config", "Config", Callable::dict_class},
      {"danling.runners.config", "RunnerConfig", Callable::dict_class},
      {"chanfig.utils.null", "NULL", Callable::null},
  };
  for (const auto& known : named) {
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

std::optional<Global> find_record_class(std::string_view module, std::string_view name) {
  struct Named {
    std::string_view module;
    std::string_view name;
  };
  static constexpr Named named[] = {
      {"torch.distributed.checkpoint.metadata", "Metadata"},
      {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
      {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
      {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
      {"torch.distributed.checkpoint.metadata", "TensorProperties"},
      {"torch.distributed.checkpoint.metadata", "MetadataIndex"},
      {"torch.distributed.checkpoint.metadata", "StorageMeta"},
      {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
      {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
      // before PyTorch 2.3
      {"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"},
      {"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"},
      // in fields that the reader ignores
      {"torch.serialization", "_get_layout"},
      {"pathlib", "PosixPath"},
      {"pathlib", "WindowsPath"},
      {"pathlib._local", "PosixPath"},
      {"pathlib._local", "WindowsPath"},
  };
  for (const auto& known : named) {
    if (known.module == module && known.name == name) {
      return Global{Callable::record, DType::uint8, known.name};
    }
  }
  return std::nullopt;
}

}  // namespace danling::inline v0::formats::pickle
