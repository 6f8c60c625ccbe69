#include <danling/checkpoint/file.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <unordered_map>

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <danling/formats/pth.hpp>

#include <checkpoint/memory.hpp>
#include <checkpoint/nested_state.hpp>
#include <checkpoint/state_archive.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0 {
namespace {

using formats::RecordTree;
using formats::TensorRecord;

constexpr std::int64_t device_piece = std::int64_t{1} << 24;

// The storages of a state, numbered in the order in which they first appear.
class StorageTable {
 public:
  TensorRecord record(const at::Tensor& tensor, const std::string& path) {
    const auto refuse = [&](const auto&... got) {
      fail<CheckpointError>("checkpoint.write", "expected a dense tensor, got ", got..., " (key ", quote(path), ")");
    };
    if (!tensor.defined()) {
      refuse("an undefined one");
    }
    const auto dtype = to_file_dtype(tensor.scalar_type());
    if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested() || !tensor.has_storage() ||
        tensor.is_meta() || !dtype) {
      refuse("layout ", layout_name(tensor), " and dtype ", c10::toString(tensor.scalar_type()), " on ",
             tensor.device().str());
    }
    const c10::Storage& storage = tensor.storage();
    const auto [found, added] = numbers_.try_emplace(storage.unsafeGetStorageImpl(), storages_.size());
    if (added) {
      storages_.push_back(storage);
      sizes_.push_back(storage.nbytes());
    }
    return TensorRecord{*dtype,
                        found->second,
                        tensor.storage_offset(),
                        tensor.sizes().vec(),
                        tensor.strides().vec(),
                        tensor.requires_grad(),
                        tensor.is_conj(),
                        tensor.is_neg()};
  }

  const std::vector<std::uint64_t>& sizes() const { return sizes_; }

  // Streams storages on a device through one host buffer: they may exceed host memory.
  void give(std::size_t number, const formats::PieceSink& sink) {
    const c10::Storage& storage = storages_[number];
    const auto size = static_cast<std::int64_t>(storage.nbytes());
    if (storage.device().is_cpu()) {
      sink({static_cast<const std::byte*>(storage.data()), static_cast<std::size_t>(size)});
      return;
    }
    if (!buffer_.defined()) {
      buffer_ = at::empty({device_piece}, at::TensorOptions().dtype(at::kByte));
    }
    const at::Tensor whole =
        at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device())).set_(storage, 0, {size}, {1});
    for (std::int64_t done = 0; done < size; done += device_piece) {
      const std::int64_t count = std::min(device_piece, size - done);
      buffer_.narrow(0, 0, count).copy_(whole.narrow(0, done, count));
      sink({static_cast<const std::byte*>(buffer_.const_data_ptr()), static_cast<std::size_t>(count)});
    }
  }

 private:
  static std::string layout_name(const at::Tensor& tensor) {
    return tensor.is_quantized()             ? "quantized"
           : tensor.is_nested()              ? "nested"
           : tensor.is_sparse()              ? "sparse"
           : tensor.layout() != at::kStrided ? "not strided"
                                             : "strided";
  }

  std::unordered_map<const c10::StorageImpl*, std::size_t> numbers_;
  std::vector<c10::Storage> storages_;
  std::vector<std::uint64_t> sizes_;
  at::Tensor buffer_;
};

RecordTree to_records(const State& state, StorageTable& storages, const std::string& path, std::size_t depth) {
  if (state.is_tensor()) {
    return storages.record(state.tensor(), path);
  }
  if (state.is_map() || state.is_list() || state.is_tuple()) {
    check<CheckpointError>(depth < formats::max_depth, "checkpoint.write", "expected at most ", formats::max_depth,
                           " levels of nesting, got more at ", quote(path.substr(0, 60)));
  }
  if (state.is_map()) {
    RecordTree::Map out;
    for (const auto& entry : state.map()) {
      const std::string name = entry.key.is_string() ? entry.key.string() : entry.key.text();
      out.set(entry.key, to_records(entry.value, storages, path.empty() ? name : concat(path, ".", name), depth + 1));
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    RecordTree::List out;
    out.reserve(state.items().size());
    for (std::size_t i = 0; i < state.items().size(); ++i) {
      const State& item = state.items()[i];
      const bool plain = item.is_integer() || item.is_double();  // avoids building paths in long lists of numbers
      out.push_back(to_records(item, storages, plain ? std::string() : concat(path, "[", i, "]"), depth + 1));
    }
    return state.is_list() ? RecordTree(std::move(out)) : RecordTree(RecordTree::Tuple{std::move(out)});
  }
  if (state.is_bool()) {
    return state.boolean();
  }
  if (state.is_integer()) {
    return state.integer();
  }
  if (state.is_double()) {
    return state.number();
  }
  if (state.is_string()) {
    return state.string();
  }
  if (state.is_bytes()) {
    return state.bytes();
  }
  return nullptr;
}

// Page faults of fresh memory cost more than reading: with huge pages a load takes a third of the time. Advises the
// whole pages inside; a failure has no effect.
void advise_huge_pages(std::span<std::byte> memory) {
  constexpr std::size_t huge = std::size_t{1} << 21;
  void* begin = memory.data();
  std::size_t size = memory.size();
  if (std::align(huge, huge, begin, size) != nullptr) {
    ::madvise(begin, size / huge * huge, MADV_HUGEPAGE);
  }
}

at::Tensor to_tensor(const TensorRecord& record, const c10::Storage& storage) {
  at::Tensor out = at::empty({0}, at::TensorOptions().dtype(to_scalar_type(record.dtype)));
  out.set_(storage, record.offset, record.sizes, record.strides);
  if (record.conjugate) {
    out = at::_conj(out);
  }
  if (record.negative) {
    out = at::_neg_view(out);
  }
  out.set_requires_grad(record.requires_grad);
  return out;
}

State to_state(const RecordTree& tree, const std::vector<c10::Storage>& storages) {
  if (tree.is_tensor()) {
    return to_tensor(tree.tensor(), storages[tree.tensor().storage]);
  }
  if (tree.is_map()) {
    State::Map out;
    for (const auto& entry : tree.map()) {
      out.set(entry.key, to_state(entry.value, storages));
    }
    return out;
  }
  if (tree.is_list() || tree.is_tuple()) {
    State::List out;
    out.reserve(tree.items().size());
    for (const auto& item : tree.items()) {
      out.push_back(to_state(item, storages));
    }
    return tree.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  if (tree.is_bool()) {
    return tree.boolean();
  }
  if (tree.is_integer()) {
    return tree.integer();
  }
  if (tree.is_double()) {
    return tree.number();
  }
  if (tree.is_string()) {
    return tree.string();
  }
  if (tree.is_bytes()) {
    return tree.bytes();
  }
  return nullptr;
}

State load_state(const formats::PthReader& reader) {
  std::vector<c10::Storage> storages;
  std::vector<std::span<std::byte>> destinations;
  for (std::size_t i = 0; i < reader.num_storages(); ++i) {
    const auto size = static_cast<std::int64_t>(reader.storage_size(i));
    const at::Tensor holder = take_memory({size}, at::kByte);
    storages.push_back(holder.storage());
    destinations.emplace_back(static_cast<std::byte*>(holder.mutable_data_ptr()), static_cast<std::size_t>(size));
    advise_huge_pages(destinations.back());
  }
  reader.read_storages(destinations);
  return decode_nested(to_state(reader.tree(), storages));
}

}  // namespace

void write_state(const State& state, formats::AtomicFile& out) {
  StorageTable storages;
  const RecordTree records = to_records(encode_nested(state), storages, "", 0);
  formats::write_pth(out, records, storages.sizes(),
                     [&](std::size_t number, const formats::PieceSink& sink) { storages.give(number, sink); });
}

std::string pack_state(const State& state) {
  StorageTable storages;
  const RecordTree records = to_records(encode_nested(state), storages, "", 0);
  const std::string tree = formats::write_pickle(records, storages.sizes());
  std::string out = concat(tree.size(), " ", tree);
  for (std::size_t i = 0; i < storages.sizes().size(); ++i) {
    storages.give(i, [&](std::span<const std::byte> piece) {
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
  }
  return out;
}

State unpack_state(std::string_view bytes) {
  std::size_t size = 0;
  const auto* const text = std::from_chars(bytes.data(), bytes.data() + bytes.size(), size).ptr;
  bytes.remove_prefix(static_cast<std::size_t>(text - bytes.data()) + 1);
  const formats::PickledTree tree = formats::read_pickle(bytes.substr(0, size));
  std::vector<c10::Storage> storages;
  for (const auto& stored : tree.storages) {
    const at::Tensor holder = take_memory({static_cast<std::int64_t>(stored.size)}, at::kByte);
    std::copy_n(bytes.data() + size, stored.size, static_cast<char*>(holder.mutable_data_ptr()));
    storages.push_back(holder.storage());
    size += stored.size;
  }
  return decode_nested(to_state(tree.tree, storages));
}

void save_file(const State& state, const std::filesystem::path& path) {
  formats::AtomicFile out(path);
  write_state(state, out);
  out.commit();
}

State load_file(const std::filesystem::path& path) {
  const formats::PthReader reader(path);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < reader.num_storages(); ++i) {
    total += reader.storage_size(i);
  }
  return with_memory(path, concat(total, " bytes of tensors"), [&] { return load_state(reader); });
}

void verify_file(const std::filesystem::path& path) {
  with_memory(path, "its verification", [&] { formats::PthReader(path).verify(); });
}

}  // namespace danling::inline v0
