#include <formats/pickle_objects.hpp>

#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>

namespace danling::inline v0::formats {

using pickle::Callable;
using pickle::Global;

void PickleObjects::push_global(std::string_view module, std::string_view name) {
  auto found = pickle::find_global(module, name);
  if (!found && reads_records_) {
    found = pickle::find_record_class(module, name);
  }
  if (!found) {
    refuse("plain values and tensors, got the global ", quote(concat(module.substr(0, 200), ".", name.substr(0, 200))),
           ", which is not supported");
  }
  push_entry(Kind::global, globals_, *found);
}

void PickleObjects::push_storage(const std::vector<std::uint32_t>& id) {
  if (id.size() != 5 || text(id[0]) != "storage") {
    refuse("the identity of a storage in 5 parts, got another one");
  }
  const Global& type = global(id[1]);
  if (type.callable != Callable::typed_storage && type.callable != Callable::untyped_storage) {
    refuse("a storage class, got another global");
  }
  text(id[3]);
  const std::string& key = text(id[2]);
  const std::int64_t count = integer(id[4]);
  const bool typed = type.callable == Callable::typed_storage;
  std::int64_t size = 0;
  if (count < 0 ||
      __builtin_mul_overflow(count, static_cast<std::int64_t>(typed ? dtype_size(type.dtype) : 1), &size)) {
    refuse("a storage size in 63 bits, got ", count, " elements");
  }
  const auto [found, added] = storage_numbers_.try_emplace(key, storages_.size());
  if (added) {
    charge(2 * sizeof(PickledStorage) + 2 * key.size() + 4 * block_size);  // in a table and in a map
    storages_.push_back({key, static_cast<std::uint64_t>(size)});
  } else if (storages_[found->second].size != static_cast<std::uint64_t>(size)) {
    refuse("storage ", quote(key), " with ", storages_[found->second].size, " bytes as before, got ", size);
  }
  push_entry(Kind::storage, uses_, StorageUse{found->second, typed, type.dtype});
}

void PickleObjects::check_arguments(bool sound, const char* what, std::size_t count) const {
  if (!sound) {
    refuse("arguments of ", what, ", got ", count, " others");
  }
}

void PickleObjects::call(const Global& function, std::uint32_t arguments_node) {
  const Callable callable = function.callable;
  const auto& arguments = tuple(arguments_node);
  const auto need = [&](bool sound, const char* what) { check_arguments(sound, what, arguments.size()); };
  switch (callable) {
    case Callable::rebuild_tensor_v2:
      need(arguments.size() == 6 || arguments.size() == 7, "_rebuild_tensor_v2");
      rebuild(arguments, false);
      return;
    case Callable::rebuild_tensor_v3:
      need(arguments.size() == 7 || arguments.size() == 8, "_rebuild_tensor_v3");
      rebuild(arguments, true);
      return;
    case Callable::rebuild_parameter:
    case Callable::rebuild_parameter_with_state: {
      need(arguments.size() == (callable == Callable::rebuild_parameter ? 3 : 4), "_rebuild_parameter");
      TensorRecord record = tensors_[static_cast<std::size_t>(node(arguments[0], Kind::tensor).integer)];
      record.requires_grad = node(arguments[1], Kind::boolean).integer != 0;
      check_hooks(arguments[2]);
      push_tensor(std::move(record));
      return;
    }
    case Callable::rebuild_from_type: {
      need(arguments.size() == 4 && global(arguments[1]).callable == Callable::tensor_class, "_rebuild_from_type_v2");
      const Global rebuild = global(arguments[0]);
      need(rebuild.callable == Callable::rebuild_tensor_v2 || rebuild.callable == Callable::rebuild_tensor_v3 ||
               rebuild.callable == Callable::rebuild_parameter,
           "_rebuild_from_type_v2");
      call(rebuild, arguments[2]);
      return;
    }
    case Callable::record:  // an enumeration or a path: the arguments are the state
      push_entry(Kind::record, records_, RecordObject{function.name, arguments_node});
      return;
    case Callable::array_reconstruct:
    case Callable::array_from_buffer:
    case Callable::array_scalar:
    case Callable::array_dtype:
      call_array(callable, arguments);
      return;
    default:
      call_plain(callable, arguments);
  }
}

void PickleObjects::call_plain(Callable callable, const std::vector<std::uint32_t>& arguments) {
  const auto need = [&](bool sound, const char* what) { check_arguments(sound, what, arguments.size()); };
  switch (callable) {
    case Callable::ordered_dict:
      need(arguments.empty(), "an empty OrderedDict");
      push_items(Kind::map, {});
      nodes_[stack_.back()].ordered = true;
      return;
    case Callable::default_dict:
      need(arguments.size() <= 1, "defaultdict");
      if (!arguments.empty() && nodes_[arguments[0]].kind != Kind::none) {
        need(global(arguments[0]).callable == Callable::plain_type, "defaultdict");
      }
      push_items(Kind::map, {});
      return;
    case Callable::counter:
      need(arguments.size() == 1, "Counter");
      node(arguments[0], Kind::map);
      push(arguments[0]);
      return;
    case Callable::make_list:
      need(arguments.size() == 1, "a set");
      node(arguments[0], Kind::list);
      push(arguments[0]);
      return;
    case Callable::size:
      need(arguments.size() == 1, "torch.Size");
      tuple(arguments[0]);
      push(arguments[0]);
      return;
    case Callable::method_name:
      need(arguments.size() == 2 && global(arguments[0]).callable == Callable::scheduler_class,
           "getattr for a method of LRScheduler");
      text(arguments[1]);
      push(arguments[1]);
      return;
    case Callable::device:
      need(arguments.size() == 1 || arguments.size() == 2, "torch.device");
      push_text(arguments.size() == 1 ? std::string(text(arguments[0]))
                                      : concat(text(arguments[0]), ":", integer(arguments[1])));
      return;
    case Callable::encode: {
      need(arguments.size() == 2 && text(arguments[1]) == "latin1", "_codecs.encode for bytes");
      bool ok = true;
      const std::string& source = text(arguments[0]);
      charge(source.size());
      std::string encoded = utf8_to_latin1(source, ok);
      need(ok, "_codecs.encode for bytes");
      push_bytes(std::move(encoded));
      return;
    }
    case Callable::make_bytes:
      need(arguments.size() <= 1, "bytes");
      arguments.empty() ? push_bytes({}) : (node(arguments[0], Kind::bytes), push(arguments[0]));
      return;
    default:
      refuse("a function that makes a value, got a type");
  }
}

void PickleObjects::make_object(const Global& type, std::uint32_t arguments_node) {
  const Callable callable = type.callable;
  if (callable == Callable::record) {
    check_arguments(tuple(arguments_node).empty(), "an object without arguments", tuple(arguments_node).size());
    push_entry(Kind::record, records_, RecordObject{type.name, arguments_node});
    return;
  }
  if (callable != Callable::dict_class && callable != Callable::null) {
    refuse("a class of dicts, got another global");
  }
  check_arguments(tuple(arguments_node).empty(), "an empty dict", tuple(arguments_node).size());
  if (callable == Callable::null) {
    push(Kind::none);
    return;
  }
  push_items(Kind::map, {});
  nodes_[stack_.back()].ordered = true;
}

void PickleObjects::build(std::uint32_t state_node) {
  Node& target = nodes_[top()];
  if (target.kind == Kind::array_dtype) {
    check_array_dtype(static_cast<DType>(target.integer), state_node);
  } else if (target.kind == Kind::array) {
    // (version, shape, dtype, column_major, bytes); the first version of the format had no number.
    const auto& state = tuple(state_node);
    check_arguments(state.size() == 5 || state.size() == 4, "an array", state.size());
    const auto* parts = &state[state.size() - 4];
    const DType dtype = array_dtype(parts[1]);
    const bool column_major = node(parts[2], Kind::boolean).integer != 0;
    const std::uint32_t filled = add_array(dtype, parts[0], parts[3], column_major);
    nodes_[top()] = nodes_[filled];
  } else if (target.kind == Kind::record) {
    records_[static_cast<std::size_t>(target.integer)].state = state_node;
  } else if (!node(top(), Kind::map).ordered) {
    refuse("attributes of an OrderedDict, got a plain dict");
  }
}

void PickleObjects::check_hooks(std::uint32_t number) {
  if (nodes_[number].kind != Kind::none && !items(node(number, Kind::map)).empty()) {
    refuse("a tensor without hooks, got hooks");
  }
}

std::vector<std::int64_t> PickleObjects::integers(std::uint32_t number) {
  const auto& numbers = tuple(number);
  if (numbers.size() > max_dims) {
    refuse("at most ", max_dims, " dimensions, got ", numbers.size());
  }
  std::vector<std::int64_t> out;
  for (const auto item : numbers) {
    out.push_back(integer(item));
  }
  return out;
}

// (storage, offset, sizes, strides, requires_grad, hooks[, dtype][, metadata])
void PickleObjects::rebuild(const std::vector<std::uint32_t>& arguments, bool names_dtype) {
  const StorageUse& use = uses_[static_cast<std::size_t>(node(arguments[0], Kind::storage).integer)];
  TensorRecord record;
  record.storage = use.storage;
  record.dtype = use.dtype;
  if (names_dtype) {
    const Global& dtype = global(arguments[6]);
    if (dtype.callable != Callable::dtype) {
      refuse("a dtype, got another global");
    }
    record.dtype = dtype.dtype;
  } else if (!use.typed) {
    refuse("a typed storage, got an untyped one");
  }
  record.offset = integer(arguments[1]);
  record.sizes = integers(arguments[2]);
  record.strides = integers(arguments[3]);
  record.requires_grad = node(arguments[4], Kind::boolean).integer != 0;
  check_hooks(arguments[5]);
  const std::size_t metadata = names_dtype ? 7 : 6;
  if (arguments.size() > metadata && nodes_[arguments[metadata]].kind != Kind::none) {
    read_metadata(arguments[metadata], record);
  }
  push_tensor(std::move(record));
}

void PickleObjects::read_metadata(std::uint32_t number, TensorRecord& record) {
  const auto& flags = items(node(number, Kind::map));
  for (std::size_t i = 0; i + 1 < flags.size(); i += 2) {
    const std::string& name = text(flags[i]);
    const bool value = node(flags[i + 1], Kind::boolean).integer != 0;
    if (name != "conj" && name != "neg") {
      refuse("tensor metadata 'conj' or 'neg', got ", quote(name));
    }
    (name == "conj" ? record.conjugate : record.negative) = value;
  }
}

void PickleObjects::push_tensor(TensorRecord record) {
  const std::string reason = check_view(record, storages_[record.storage].size);
  if (!reason.empty()) {
    refuse(reason);
  }
  charge(16 * record.sizes.size() + 2 * block_size);
  push_entry(Kind::tensor, tensors_, std::move(record));
}

}  // namespace danling::inline v0::formats
