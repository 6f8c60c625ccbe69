// Writes the metadata of torch.distributed.checkpoint.
#include <utility>

#include <danling/formats/detail/dcp_metadata.hpp>

#include <formats/pickle_emitter.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view metadata_module = "torch.distributed.checkpoint.metadata";

// Emits the objects that Python's pickle.dump would write.
class DcpMetadataWriter : private PickleEmitter {
 public:
  explicit DcpMetadataWriter(std::span<const DcpEntry> entries) {
    object(metadata_module, "Metadata", [&] {
      field("state_dict_metadata", [&] { map(entries, [&](const DcpEntry& entry) { description(entry); }); });
      field("planner_data", [&] { map(entries, [&](const DcpEntry& entry) { path(entry); }); });
      field("storage_data", [&] { places(entries); });
      field("storage_meta", [&] { put(Op::none); });
      field("version", [&] { word("1.0.0"); });
    });
    put(Op::stop);
  }

  using PickleEmitter::take;

 private:
  template <class Fields>
  void object(std::string_view module, std::string_view name, Fields fields) {
    global(module, name);
    put(Op::empty_tuple);
    put(Op::newobj);
    put(Op::empty_dict);
    put(Op::mark);
    fields();
    put(Op::setitems);
    put(Op::build);
  }

  template <class Value>
  void field(std::string_view name, Value value) {
    word(name);
    value();
  }

  template <class Value>
  void map(std::span<const DcpEntry> entries, Value value) {
    put(Op::empty_dict);
    put(Op::mark);
    for (const auto& entry : entries) {
      word(entry.name);
      value(entry);
    }
    put(Op::setitems);
  }

  void size(const std::vector<std::int64_t>& sizes) {
    global("torch", "Size");
    tuple(sizes, [this](std::int64_t value) { integer(value); });
    put(Op::tuple1);
    put(Op::reduce);
  }

  void properties(const DcpEntry& entry) {
    global(metadata_module, "TensorProperties");
    put(Op::empty_tuple);
    put(Op::newobj);
    put(Op::mark);
    global("torch", dtype_name(entry.dtype));
    global("torch.serialization", "_get_layout");
    word("torch.strided");
    put(Op::tuple1);
    put(Op::reduce);
    boolean(entry.requires_grad);
    global(metadata_module, "_MEM_FORMAT_ENCODING");
    integer(0);
    put(Op::tuple1);
    put(Op::reduce);
    boolean(false);
    put(Op::tuple);
    put(Op::build);
  }

  void description(const DcpEntry& entry) {
    if (!entry.is_tensor) {
      global(metadata_module, "BytesStorageMetadata");
      put(Op::empty_tuple);
      put(Op::newobj);
      return;
    }
    object(metadata_module, "TensorStorageMetadata", [&] {
      field("properties", [&] { properties(entry); });
      field("size", [&] { size(entry.sizes); });
      field("chunks", [&] {
        put(Op::empty_list);
        put(Op::mark);
        for (const auto& chunk : entry.chunks) {
          object(metadata_module, "ChunkStorageMetadata", [&] {
            field("offsets", [&] { size(chunk.offsets); });
            field("sizes", [&] { size(chunk.sizes); });
          });
        }
        put(Op::appends);
      });
    });
  }

  // As in Python: strings for the keys of maps, numbers for the positions in lists.
  void path(const DcpEntry& entry) {
    tuple(entry.path, [this](const Key& key) { key.is_string() ? word(key.string()) : integer(key.integer()); });
  }

  void places(std::span<const DcpEntry> entries) {
    put(Op::empty_dict);
    put(Op::mark);
    for (const auto& entry : entries) {
      for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
        const DcpChunk& chunk = entry.chunks[i];
        object(metadata_module, "MetadataIndex", [&] {
          field("fqn", [&] { word(entry.name); });
          field("offset", [&] { entry.is_tensor ? size(chunk.offsets) : put(Op::none); });
          field("index", [&] { entry.is_tensor ? integer(static_cast<std::int64_t>(i)) : put(Op::none); });
        });
        object("torch.distributed.checkpoint.filesystem", "_StorageInfo", [&] {
          field("relative_path", [&] { word(chunk.file); });
          field("offset", [&] { integer(static_cast<std::int64_t>(chunk.offset)); });
          field("length", [&] { integer(static_cast<std::int64_t>(chunk.length)); });
        });
      }
    }
    put(Op::setitems);
  }
};

}  // namespace

std::string write_dcp_metadata(std::span<const DcpEntry> entries) { return DcpMetadataWriter(entries).take(); }

}  // namespace danling::inline v0::formats
