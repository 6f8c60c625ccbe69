#include <danling/formats/detail/dcp_metadata.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <formats/pickle_records.hpp>

namespace danling::inline v0::formats {
namespace {

class DcpMetadataReader {
 public:
  DcpMetadataReader(std::string_view bytes, std::string_view source)
      : source_(source), tree_(read_record_objects(bytes, source)) {}

  std::vector<DcpEntry> read() {
    const RecordTree& fields = state(tree_, "Metadata");
    const RecordTree& described = member(fields, "state_dict_metadata");
    if (!described.is_map()) {
      refuse("a map of entries", described.kind());
    }
    const RecordTree* paths = fields.find("planner_data");
    for (const auto& [key, value] : described.map()) {
      where_ = key.is_string() ? key.string() : key.text();
      DcpEntry entry;
      entry.name = where_;
      describe(value, entry);
      if (paths != nullptr && paths->is_map()) {
        if (const RecordTree* path = paths->find(key)) {
          take_path(*path, entry);
        }
      }
      numbers_.emplace(entry.name, entries_.size());
      entries_.push_back(std::move(entry));
    }
    const RecordTree& places = member(fields, "storage_data");
    if (places.is_list()) {
      for (const auto& pair : places.list()) {
        if (!pair.is_tuple() || pair.tuple().size() != 2) {
          refuse("pairs of an entry and its place", pair.kind());
        }
        place(pair.tuple().at(0), pair.tuple().at(1));
      }
    } else if (!places.is_map() || !places.map().empty()) {
      refuse("a map of places in files", places.kind());
    }
    for (auto& entry : entries_) {
      where_ = entry.name;
      // The shards without rows of several ranks have equal offsets; Python keeps the place of only one.
      std::erase_if(entry.chunks, [&](const DcpChunk& chunk) {
        return chunk.file.empty() && std::find(chunk.sizes.begin(), chunk.sizes.end(), 0) != chunk.sizes.end();
      });
      check_entry(entry);
    }
    return std::move(entries_);
  }

 private:
  template <class Expected, class Got>
  [[noreturn]] void refuse(const Expected& expected, const Got& got) const {
    fail<CheckpointError>("checkpoint.read", "expected ", expected, ", got ", got, " (", source_,
                          where_.empty() ? "" : concat(", entry ", quote(where_.substr(0, 200))), ")");
  }

  // Returns the class of an object; empty for other values.
  static std::string_view class_of(const RecordTree& value) {
    if (!value.is_map() || value.map().size() != 2) {
      return {};
    }
    const RecordTree* name = value.find("class");
    return name != nullptr && name->is_string() && value.find("state") != nullptr ? std::string_view(name->string())
                                                                                  : std::string_view();
  }

  const RecordTree& state(const RecordTree& value, std::string_view name) const {
    if (class_of(value) != name) {
      refuse(concat("an object of the class ", name), class_of(value).empty() ? value.kind() : class_of(value));
    }
    return value.at("state");
  }

  const RecordTree& member(const RecordTree& fields, const char* name) const {
    const RecordTree* found = fields.is_map() ? fields.find(name) : nullptr;
    if (found == nullptr) {
      refuse(concat("a field ", quote(name)), "none");
    }
    return *found;
  }

  std::int64_t number(const RecordTree& value, const char* what) const {
    if (!value.is_integer() || value.integer() < 0) {
      refuse(concat("a number of 0 or more as ", what), value.is_integer() ? to_text(value.integer()) : value.kind());
    }
    return value.integer();
  }

  std::vector<std::int64_t> size(const RecordTree& value, const char* what) const {
    if (!value.is_tuple() || value.tuple().size() > max_dims) {
      refuse(concat("a tuple of at most ", max_dims, " numbers as ", what), value.kind());
    }
    std::vector<std::int64_t> out;
    for (const auto& item : value.tuple()) {
      out.push_back(number(item, what));
    }
    return out;
  }

  void describe(const RecordTree& value, DcpEntry& entry) const {
    if (class_of(value) == "BytesStorageMetadata") {
      return;
    }
    const RecordTree& fields = state(value, "TensorStorageMetadata");
    entry.is_tensor = true;
    entry.sizes = size(member(fields, "size"), "sizes");
    const RecordTree& properties = state(member(fields, "properties"), "TensorProperties");
    if (!properties.is_tuple() || properties.tuple().size() != 5 || !properties.tuple()[0].is_string() ||
        !properties.tuple()[2].is_bool()) {
      refuse("five properties of a tensor, from its dtype on", "others");
    }
    const std::string& dtype = properties.tuple()[0].string();
    bool known = false;
    for (std::size_t i = 0; i < dtype_count && !known; ++i) {
      entry.dtype = static_cast<DType>(i);
      known = dtype_name(entry.dtype) == dtype;
    }
    if (!known) {
      refuse("a known dtype", quote(dtype));
    }
    entry.requires_grad = properties.tuple()[2].boolean();
    const RecordTree& chunks = member(fields, "chunks");
    if (!chunks.is_list()) {
      refuse("a list of boxes", chunks.kind());
    }
    for (const auto& item : chunks.list()) {
      const RecordTree& box = state(item, "ChunkStorageMetadata");
      DcpChunk chunk;
      chunk.offsets = size(member(box, "offsets"), "offsets");
      chunk.sizes = size(member(box, "sizes"), "sizes");
      entry.chunks.push_back(std::move(chunk));
    }
  }

  void take_path(const RecordTree& path, DcpEntry& entry) const {
    if (!path.is_tuple() || path.tuple().empty() || path.tuple().size() > max_depth) {
      refuse("a tuple of keys", path.kind());
    }
    for (const auto& key : path.tuple()) {
      if (key.is_string()) {
        entry.path.emplace_back(key.string());
      } else {
        entry.path.emplace_back(number(key, "a key"));
      }
    }
  }

  void place(const RecordTree& key, const RecordTree& value) {
    where_.clear();
    const RecordTree& index = state(key, "MetadataIndex");
    const RecordTree& name = member(index, "fqn");
    const auto found = name.is_string() ? numbers_.find(name.string()) : numbers_.end();
    if (found == numbers_.end()) {
      refuse("a place of a described entry", name.is_string() ? quote(name.string().substr(0, 200)) : name.kind());
    }
    DcpEntry& entry = entries_[found->second];
    where_ = entry.name;
    const RecordTree& info = state(value, "_StorageInfo");
    const RecordTree& file = member(info, "relative_path");
    const RecordTree* transforms = info.find("transform_descriptors");
    if (transforms != nullptr && !transforms->is_null() &&
        !((transforms->is_list() || transforms->is_tuple()) && transforms->items().empty())) {
      refuse("plain archives of torch.save", "a transformed one");
    }
    if (!file.is_string() || !stays_inside(file.string())) {
      refuse("a file of the directory", file.is_string() ? quote(file.string().substr(0, 200)) : file.kind());
    }
    DcpChunk* chunk = entry.is_tensor ? chunk_at(entry, member(index, "offset"), index.find("index")) : nullptr;
    if (!entry.is_tensor) {
      chunk = &entry.chunks.emplace_back();
    }
    if (chunk == nullptr || !chunk->file.empty()) {
      refuse("one place for each box", chunk == nullptr ? "one of no box" : "two");
    }
    chunk->file = file.string();
    chunk->offset = static_cast<std::uint64_t>(number(member(info, "offset"), "offset"));
    chunk->length = static_cast<std::uint64_t>(number(member(info, "length"), "length"));
  }

  static bool stays_inside(const std::string& file) {
    const std::filesystem::path path(file);
    return !file.empty() && file.find('\0') == std::string::npos && path.is_relative() &&
           std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  }

  // Finds a box by the hint, else by its offsets, which are unique in the tensor.
  DcpChunk* chunk_at(DcpEntry& entry, const RecordTree& offset, const RecordTree* hint) const {
    if (offset.is_null()) {
      return entry.chunks.size() == 1 ? &entry.chunks.front() : nullptr;
    }
    const auto offsets = size(offset, "offset");
    if (hint != nullptr && hint->is_integer() && hint->integer() >= 0 &&
        static_cast<std::size_t>(hint->integer()) < entry.chunks.size()) {
      DcpChunk& hinted = entry.chunks[static_cast<std::size_t>(hint->integer())];
      if (hinted.offsets == offsets && hinted.file.empty()) {
        return &hinted;
      }
    }
    for (auto& chunk : entry.chunks) {
      if (chunk.offsets == offsets && chunk.file.empty()) {
        return &chunk;
      }
    }
    return nullptr;
  }

  void check_entry(const DcpEntry& entry) const {
    for (const auto& chunk : entry.chunks) {
      if (chunk.file.empty()) {
        refuse("a place for each box", "none for one");
      }
    }
    if (!entry.is_tensor && entry.chunks.size() != 1) {
      refuse("one place", entry.chunks.size());
    }
    if (entry.is_tensor) {
      const std::string reason = check_boxes(entry.sizes, entry.chunks);
      if (!reason.empty()) {
        fail<CheckpointError>("checkpoint.read", reason, " (", source_, ", entry ", quote(where_.substr(0, 200)), ")");
      }
    }
  }

  std::string source_;
  RecordTree tree_;
  std::string where_;
  std::vector<DcpEntry> entries_;
  std::unordered_map<std::string, std::size_t> numbers_;
};

bool overlap(const DcpChunk& a, const DcpChunk& b) {
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<DcpEntry> read_dcp_metadata(std::string_view bytes, std::string_view source) {
  return DcpMetadataReader(bytes, source).read();
}

std::string check_boxes(std::span<const std::int64_t> sizes, std::span<const DcpChunk> chunks) {
  const auto text = [](std::span<const std::int64_t> values) {
    return concat("[", join(std::vector<std::int64_t>(values.begin(), values.end())), "]");
  };
  const auto volume = [](std::span<const std::int64_t> values, std::int64_t& out) {
    out = 1;
    return std::none_of(values.begin(), values.end(),
                        [&](std::int64_t value) { return __builtin_mul_overflow(out, value, &out); });
  };
  std::int64_t whole = 0;
  // A size of 0 would hide an overflow of the others.
  std::vector<std::int64_t> above_zero(sizes.begin(), sizes.end());
  std::replace(above_zero.begin(), above_zero.end(), std::int64_t{0}, std::int64_t{1});
  if (!volume(above_zero, whole) || whole > std::numeric_limits<std::int64_t>::max() / 16) {
    return concat("expected a tensor of less than 2^59 elements, got sizes ", text(sizes));
  }
  volume(sizes, whole);
  std::int64_t sum = 0;
  std::vector<const DcpChunk*> order;
  for (const auto& chunk : chunks) {
    bool inside = chunk.offsets.size() == sizes.size() && chunk.sizes.size() == sizes.size();
    for (std::size_t d = 0; inside && d < sizes.size(); ++d) {
      inside = chunk.offsets[d] >= 0 && chunk.sizes[d] >= 0 && chunk.sizes[d] <= sizes[d] &&
               chunk.offsets[d] <= sizes[d] - chunk.sizes[d];
    }
    if (!inside) {
      return concat("expected boxes inside of the sizes ", text(sizes), ", got sizes ", text(chunk.sizes),
                    " at offsets ", text(chunk.offsets));
    }
    std::int64_t elements = 0;
    volume(chunk.sizes, elements);
    if (__builtin_add_overflow(sum, elements, &sum)) {
      sum = std::numeric_limits<std::int64_t>::max();
    }
    if (elements > 0) {
      order.push_back(&chunk);
    }
  }
  if (sum != whole) {
    return concat("expected boxes of ", whole, " elements together, got ", sum, " of a tensor with sizes ",
                  text(sizes));
  }
  if (sizes.empty() || order.size() < 2) {
    return {};
  }
  // Sweeps along the dimension with the most cuts, so that few boxes are open at a time.
  std::size_t sweep = 0;
  std::size_t most = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::set<std::int64_t> cuts;
    for (const auto* chunk : order) {
      cuts.insert(chunk->offsets[d]);
    }
    if (cuts.size() > most) {
      most = cuts.size();
      sweep = d;
    }
  }
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return a->offsets[sweep] < b->offsets[sweep]; });
  std::multimap<std::int64_t, const DcpChunk*> open;  // by the end
  for (const auto* chunk : order) {
    open.erase(open.begin(), open.upper_bound(chunk->offsets[sweep]));
    for (const auto& [end, other] : open) {
      if (overlap(*chunk, *other)) {
        return concat("expected boxes that do not overlap, got two at offsets ", text(other->offsets), " and ",
                      text(chunk->offsets));
      }
    }
    open.emplace(chunk->offsets[sweep] + chunk->sizes[sweep], chunk);
  }
  return {};
}

}  // namespace danling::inline v0::formats
