#include "pickle_objects.hpp"

#include <danling/core/error.hpp>
#include <danling/formats/pickle.hpp>

namespace danling::inline v0::formats {

using pickle::Callable;
using pickle::Global;

void PickleObjects::push_global(std::string_view module, std::string_view name) {
  const auto found = pickle::find_global(module, name);
  if (!found) {
    refuse("plain values and tensors, got the global ", quote(concat(module.substr(0, 200), ".", name.substr(0, 200))),
           ", which is not read");
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
    charge(sizeof(PickledStorage) + 2 * key.size());
    storages_.push_back({key, static_cast<std::uint64_t>(size)});
  } else if (storages_[found->second].size != static_cast<std::uint64_t>(size)) {
    refuse("storage ", quote(key), " with ", storages_[found->second].size, " bytes as before, got ", size);
  }
  push_entry(Kind::storage, uses_, StorageUse{found->second, typed, type.dtype});
}

void PickleObjects::call(Callable callable, std::uint32_t arguments_node) {
  const auto& arguments = tuple(arguments_node);
  const auto need = [&](bool sound, const char* what) {
    if (!sound) {
      refuse("arguments of ", what, ", got ", arguments.size(), " others");
    }
  };
  switch (callable) {
    case Callable::ordered_dict:
      need(arguments.empty(), "an empty OrderedDict");
      push_items(Kind::map, {});
      nodes_[stack_.back()].ordered = true;
      return;
    case Callable::size:
      need(arguments.size() == 1, "torch.Size");
      tuple(arguments[0]);
      push(arguments[0]);
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
    case Callable::rebuild_tensor_v2:
      need(arguments.size() == 6 || arguments.size() == 7, "_rebuild_tensor_v2");
      rebuild(arguments, false);
      return;
    case Callable::rebuild_tensor_v3:
      need(arguments.size() == 7 || arguments.size() == 8, "_rebuild_tensor_v3");
      rebuild(arguments, true);
      return;
    case Callable::rebuild_parameter: {
      need(arguments.size() == 3, "_rebuild_parameter");
      TensorRecord record = tensors_[static_cast<std::size_t>(node(arguments[0], Kind::tensor).integer)];
      record.requires_grad = node(arguments[1], Kind::boolean).integer != 0;
      check_hooks(arguments[2]);
      push_tensor(std::move(record));
      return;
    }
    default:
      refuse("a function that makes a value, got a type");
  }
}

void PickleObjects::check_hooks(std::uint32_t number) {
  if (nodes_[number].kind != Kind::none && !items(node(number, Kind::map)).empty()) {
    refuse("a tensor without hooks, got hooks");
  }
}

std::vector<std::int64_t> PickleObjects::integers(std::uint32_t number) {
  const auto& numbers = tuple(number);
  if (numbers.size() > 64) {
    refuse("at most 64 dimensions, got ", numbers.size());
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
  const std::string reason = misfit(record, storages_[record.storage].size);
  if (!reason.empty()) {
    refuse(reason);
  }
  charge(16 * record.sizes.size());
  push_entry(Kind::tensor, tensors_, std::move(record));
}

}  // namespace danling::inline v0::formats
