#include "tensor_file.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>
#include <danling/formats/pth.hpp>

namespace danling_command {

using danling::detail::concat;
using danling::formats::DcpReader;
using danling::formats::PthReader;
using danling::formats::SafetensorsReader;

namespace {

template <class Check>
void collect(std::vector<Damage>& out, const std::string& record, Check&& check) {
  try {
    check();
  } catch (const danling::CheckpointError& error) {
    out.push_back({record, error.what()});
  }
}

}  // namespace

void resize(std::vector<std::byte>& out, std::uint64_t bytes, const std::filesystem::path& path) {
  try {
    out.resize(static_cast<std::size_t>(bytes));
  } catch (const std::bad_alloc&) {
    danling::detail::fail<danling::CheckpointError>("checkpoint.read", "expected memory for ", bytes,
                                                    " bytes of one tensor, got none (file ",
                                                    danling::detail::quote(path.string()), ")");
  }
}

struct TensorFile::Backing {
  std::optional<PthReader> pth;
  std::optional<SafetensorsReader> safetensors;
  std::unique_ptr<DcpReader> shards;
  RecordTree tree;  // for safetensors files
  std::vector<bool> verified;
  std::vector<std::byte> inflated;  // the content of one deflated storage
  std::size_t inflated_storage = SIZE_MAX;
};

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path), backing_(std::make_unique<Backing>()) {
  if (is_sharded_path(path)) {
    path_ = danling::formats::resolve_dcp(path);
    backing_->shards = std::make_unique<DcpReader>(path_);
    DcpReader& reader = *backing_->shards;
    danling::detail::check<danling::CheckpointError>(
        reader.manifest() || reader.find(danling::formats::dcp_tree_name) == nullptr, "checkpoint.read",
        "expected a manifest, got none: the save was not completed (directory ", danling::detail::quote(path_.string()),
        ")");
    backing_->tree = reader.tree();
    size_ = reader.size();
    return;
  }
  if (danling::formats::is_safetensors(path)) {
    const auto& reader = backing_->safetensors.emplace(path);
    RecordTree::Map map;
    for (const auto& entry : reader.entries()) {
      map.set(entry.name,
              TensorRecord{entry.dtype, map.size(), 0, entry.sizes, row_major(entry.sizes), false, false, false});
    }
    metadata_ = reader.metadata();
    for (const auto& [name, target] : reader.aliases()) {
      map.set(name, map.at(target).tensor());
      metadata_.erase(name);
    }
    backing_->tree = std::move(map);
  } else {
    backing_->pth.emplace(path);
  }
  size_ = std::filesystem::file_size(path);
  backing_->verified.resize(num_storages(), false);
}

TensorFile::~TensorFile() = default;

bool TensorFile::is_safetensors() const { return backing_->safetensors.has_value(); }
bool TensorFile::is_sharded() const { return backing_->shards != nullptr; }

std::string TensorFile::format() const {
  if (is_sharded()) {
    const auto& manifest = backing_->shards->manifest();
    return manifest
               ? concat("shards of danling, of ", manifest->world_size, " rank", manifest->world_size == 1 ? "" : "s")
               : "directory of torch.distributed.checkpoint";
  }
  const bool ours = has_hashes() || (backing_->pth && backing_->pth->has_manifest());
  return concat(is_safetensors() ? "safetensors file" : "PyTorch archive", ours ? " of danling" : "");
}

const RecordTree& TensorFile::tree() const { return backing_->pth ? backing_->pth->tree() : backing_->tree; }

std::vector<std::string> TensorFile::unread() const {
  std::vector<std::string> out;
  if (is_sharded()) {
    for (const auto& [name, reason] : backing_->shards->unread()) {
      out.push_back(concat(name, ": ", reason));
    }
  }
  return out;
}

std::size_t TensorFile::num_storages() const {
  if (is_sharded()) {
    return backing_->shards->num_storages();
  }
  return backing_->pth ? backing_->pth->num_storages() : backing_->safetensors->entries().size();
}

std::uint64_t TensorFile::storage_size(std::size_t storage) const {
  if (is_sharded()) {
    return backing_->shards->storage_size(storage);
  }
  return backing_->pth ? backing_->pth->storage_size(storage) : backing_->safetensors->entries().at(storage).bytes;
}

void TensorFile::verify_storage(std::size_t storage) const {
  if (backing_->pth) {
    backing_->pth->verify_record(backing_->pth->storage_record(storage));
  } else if (has_hashes()) {
    backing_->safetensors->verify(backing_->safetensors->entries()[storage]);
  }
}

void TensorFile::read(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) {
  auto& backing = *backing_;
  if (is_sharded()) {
    backing.shards->read_storage(storage, offset, out);
    return;
  }
  if (!backing.verified[storage]) {
    verify_storage(storage);
    backing.verified[storage] = true;
  }
  if (backing.safetensors) {
    backing.safetensors->read(backing.safetensors->entries()[storage], offset, out);
    return;
  }
  const auto& record = backing.pth->storage_record(storage);
  if (!record.deflated) {
    backing.pth->read_storage(storage, offset, out);
    return;
  }
  if (backing.inflated_storage != storage) {
    resize(backing.inflated, storage_size(storage), path_);
    backing.pth->read_storage(storage, backing.inflated);
    backing.inflated_storage = storage;
  }
  danling::detail::check<danling::CheckpointError>(
      offset <= backing.inflated.size() && out.size() <= backing.inflated.size() - offset, "checkpoint.read",
      "expected a range inside the storage, got one outside");
  std::copy_n(backing.inflated.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
}

std::string TensorFile::checks() const {
  if (is_sharded()) {
    return has_hashes() ? "XXH3-128" : "CRC-32";
  }
  return has_hashes() ? "XXH3-128" : backing_->pth && backing_->pth->has_checksums() ? "CRC-32" : "";
}

bool TensorFile::has_hashes() const {
  if (is_sharded()) {
    return backing_->shards->manifest().has_value();
  }
  return backing_->pth ? backing_->pth->record_hash(backing_->pth->records().front()) != nullptr
                       : backing_->safetensors->has_hashes();
}

std::size_t TensorFile::num_records() const {
  if (is_sharded()) {
    return backing_->shards->files().size();
  }
  return backing_->pth ? backing_->pth->records().size() : backing_->safetensors->entries().size();
}

std::vector<Damage> TensorFile::verify() const {
  std::vector<Damage> out;
  if (is_sharded()) {
    for (const auto& name : backing_->shards->files()) {
      collect(out, name, [&] { backing_->shards->verify(name); });
    }
    return out;
  }
  try {
    backing_->pth ? backing_->pth->verify() : backing_->safetensors->verify();  // on all cores
    return out;
  } catch (const danling::CheckpointError&) {
    // Verifies records one by one, to report every damaged record, not only the first.
  }
  if (backing_->pth) {
    for (const auto& record : backing_->pth->records()) {
      collect(out, record.name, [&] { backing_->pth->verify_record(record); });
    }
  } else {
    for (const auto& entry : backing_->safetensors->entries()) {
      collect(out, entry.name, [&] { backing_->safetensors->verify(entry); });
    }
  }
  return out;
}

bool is_sharded_path(const std::filesystem::path& path) {
  const auto directory = danling::formats::resolve_dcp(path);
  std::error_code error;
  if (danling::formats::is_dcp(directory)) {
    return true;
  }
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".distcp") {  // an incomplete save
      return true;
    }
  }
  return false;
}

bool is_plain_list(const RecordTree& tree) {
  return (tree.is_list() || tree.is_tuple()) &&
         std::all_of(tree.items().begin(), tree.items().end(), [](const RecordTree& item) {
           return !item.is_tensor() && !item.is_map() && (!(item.is_list() || item.is_tuple()) || is_plain_list(item));
         });
}

namespace {

void add_leaves(const RecordTree& tree, const std::string& path, const std::string& place, std::vector<Leaf>& out) {
  if (tree.is_map() && !tree.map().empty()) {
    for (const auto& [key, value] : tree.map()) {
      const std::string name = key.is_string() ? key.string() : key.text();
      add_leaves(value, path.empty() ? name : concat(path, ".", name),
                 concat(place, key.is_string() ? "/" : "#", name.size(), ":", name), out);
    }
  } else if ((tree.is_list() || tree.is_tuple()) && !is_plain_list(tree)) {
    for (std::size_t i = 0; i < tree.items().size(); ++i) {
      add_leaves(tree.items()[i], concat(path, "[", i, "]"), concat(place, "[", i, "]"), out);
    }
  } else {
    out.push_back({path, &tree, place});
  }
}

}  // namespace

std::vector<Leaf> leaves_of(const RecordTree& tree) {
  std::vector<Leaf> out;
  add_leaves(tree, "", "", out);
  return out;
}

bool is_below(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) &&
         (prefix.empty() || path.size() == prefix.size() || path[prefix.size()] == '.' || path[prefix.size()] == '[');
}

}  // namespace danling_command
