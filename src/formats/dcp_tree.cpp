// DcpReader::tree(): builds the state of a sharded checkpoint, with a storage for each tensor.
#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>
#include <danling/formats/pth.hpp>

namespace danling::inline v0::formats {
namespace {

// Renumbers the storages of tensors inside a pickled value from `first` on.
RecordTree shifted(const RecordTree& tree, std::size_t first) {
  if (tree.is_tensor()) {
    TensorRecord record = tree.tensor();
    record.storage += first;
    return record;
  }
  if (tree.is_map()) {
    RecordTree::Map out;
    for (const auto& [key, value] : tree.map()) {
      out.append(key, shifted(value, first));
    }
    return out;
  }
  if (tree.is_list() || tree.is_tuple()) {
    RecordTree::List out;
    for (const auto& item : tree.items()) {
      out.push_back(shifted(item, first));
    }
    return tree.is_list() ? RecordTree(std::move(out)) : RecordTree(RecordTree::Tuple{std::move(out)});
  }
  return tree;
}

}  // namespace

TensorRecord DcpReader::add_storage(const DcpEntry& entry) {
  storages_.push_back({&entry, nullptr, 0});
  TensorRecord out{entry.dtype, storages_.size() - 1, 0, entry.sizes, {}, entry.requires_grad, false, false};
  out.strides.assign(entry.sizes.size(), 1);
  for (std::size_t d = entry.sizes.size(); d-- > 1;) {
    out.strides[d - 1] = out.strides[d] * std::max<std::int64_t>(entry.sizes[d], 1);
  }
  return out;
}

RecordTree DcpReader::read_value(const DcpEntry& entry) {
  const DcpChunk& chunk = entry.chunks.front();
  if (DcpFile& file = open(chunk.file); file.has_hashes()) {  // verify here: the archive's reader does not
    std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(chunk.length, file.size())));
    file.read(chunk.offset, bytes);
  }
  auto archive = std::make_shared<PthReader>(directory_ / chunk.file, chunk.offset, chunk.length);
  const std::size_t first = storages_.size();
  for (std::size_t i = 0; i < archive->num_storages(); ++i) {
    storages_.push_back({nullptr, archive, i});
  }
  bytes_read_ += chunk.length;
  return archive->num_storages() == 0 ? archive->tree() : shifted(archive->tree(), first);
}

const RecordTree& DcpReader::tree() {
  if (!tree_) {
    tree_.emplace(RecordTree::Map());
    try {
      if (const DcpEntry* described = find(dcp_tree_name); described != nullptr && !described->is_tensor) {
        add_tree(read_value(*described));
      } else {
        add_python_tree();
      }
    } catch (...) {
      tree_.reset();
      storages_.clear();
      throw;
    }
  }
  return *tree_;
}

// `described` is {values: the tree with null for each tensor, tensors: a list of names and their keys}.
void DcpReader::add_tree(const RecordTree& described) {
  const DcpEntry& own = *find(dcp_tree_name);
  const auto need = [&](bool sound) {
    if (!sound) {
      fail(own, "expected values and keys of tensors, got invalid data");
    }
  };
  const RecordTree* values = described.is_map() ? described.find("values") : nullptr;
  const RecordTree* tensors = described.is_map() ? described.find("tensors") : nullptr;
  need(values != nullptr && tensors != nullptr && tensors->is_list());
  tree_ = *values;
  for (const auto& place : tensors->list()) {
    need(place.is_tuple() && place.tuple().size() == 2 && place.tuple()[0].is_string() && place.tuple()[1].is_tuple());
    const DcpEntry* entry = find(place.tuple()[0].string());
    need(entry != nullptr && entry->is_tensor);
    RecordTree* at = &*tree_;
    for (const auto& key : place.tuple()[1].tuple()) {
      need(key.is_string() || key.is_integer());
      if (at->is_map()) {
        at = at->map().find(key.is_string() ? Key(key.string()) : Key(key.integer()));
      } else {
        need((at->is_list() || at->is_tuple()) && key.is_integer());
        auto& items = const_cast<RecordTree::List&>(at->items());
        at = key.integer() >= 0 && static_cast<std::size_t>(key.integer()) < items.size()
                 ? &items[static_cast<std::size_t>(key.integer())]
                 : nullptr;
      }
      need(at != nullptr);
    }
    need(at->is_null());
    *at = add_storage(*entry);
  }
}

// Builds the tree as Python's set_element does.
void DcpReader::add_python_tree() {
  std::size_t fillers = 4 * entries_.size() + 65536;  // limit of null items that fill gaps in lists
  for (const auto& entry : entries_) {
    RecordTree value;
    if (entry.is_tensor) {
      value = add_storage(entry);
    } else {
      const std::size_t before = storages_.size();
      try {
        value = read_value(entry);
      } catch (const CheckpointError& error) {
        storages_.resize(before);
        unread_.emplace(entry.name, error.what());
        value = std::string("(not read)");
      }
    }
    const std::vector<Key> path = entry.path.empty() ? std::vector<Key>{Key(entry.name)} : entry.path;
    RecordTree* at = &*tree_;
    for (const auto& key : path) {
      if (at->is_null()) {
        *at = key.is_string() ? RecordTree(RecordTree::Map()) : RecordTree(RecordTree::List());
      }
      if (key.is_string() && at->is_map()) {
        at = &at->map()[key];
      } else if (!key.is_string() && at->is_list()) {
        auto& items = at->list();
        const auto index = static_cast<std::size_t>(key.integer());
        if (index >= items.size()) {
          if (index - items.size() >= fillers) {
            fail(entry, concat("expected lists without gaps, got item ", index, " of a list with ", items.size()));
          }
          fillers -= index - items.size();
          items.resize(index + 1);
        }
        at = &items[index];
      } else {
        fail(entry, concat("expected keys that fit the other entries, got the key ", key.text(), " of ", at->kind()));
      }
    }
    if (!at->is_null()) {
      fail(entry, "expected a key without a value, got one that already has a value");
    }
    *at = std::move(value);
  }
}

std::uint64_t DcpReader::storage_size(std::size_t storage) const {
  const Storage& found = storages_.at(storage);
  if (found.entry == nullptr) {
    return found.value->storage_size(found.number);
  }
  std::uint64_t out = dtype_size(found.entry->dtype);
  for (const auto size : found.entry->sizes) {
    out *= static_cast<std::uint64_t>(size);
  }
  return out;
}

const DcpEntry* DcpReader::storage_entry(std::size_t storage) const { return storages_.at(storage).entry; }

void DcpReader::read_storage(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) {
  const Storage& found = storages_.at(storage);
  if (found.entry == nullptr) {
    found.value->read_storage(found.number, offset, out);
    bytes_read_ += out.size();
  } else {
    read(*found.entry, offset, out);
  }
}

}  // namespace danling::inline v0::formats
