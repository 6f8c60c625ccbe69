#include <danling/data/datasets/array_datasets.hpp>

#include <bit>
#include <cstddef>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_reader.hpp>
#include <danling/formats/npy.hpp>
#include <danling/formats/safetensors.hpp>

#include <data/datasets/records.hpp>

namespace danling::inline v0::data {

namespace {

namespace fs = std::filesystem;

// Converts CheckpointErrors, which the readers of checkpoints throw.
template <class Read>
auto reading(std::string_view where, const Read& read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    std::string_view reason = error.what();
    const std::size_t end = reason.find("] ");
    reason.remove_prefix(end == std::string_view::npos ? 0 : end + 2);
    fail<DataError>(where, reason);
  }
}

void describe(RecordArray& out, const formats::NpyArray& array, std::span<const std::byte> content) {
  out.bytes = content.subspan(static_cast<std::size_t>(array.offset));
  out.dtype = array.dtype;
  out.sizes = array.sizes;
  out.fortran_order = array.fortran_order;
  out.swapped = array.swapped;
}

RecordArray open_npy(std::string name, const fs::path& path) {
  RecordArray out;
  out.name = std::move(name);
  out.path = path.string();
  out.file = std::make_shared<formats::MappedFile>(path, formats::Access::random, "data.npy");
  describe(out, formats::parse_npy(out.file->bytes(), out.source()), out.file->bytes());
  return out;
}

/// Calls `read(name in the batch, name in the file)` for each named array.
template <class Read>
std::vector<RecordArray> each_array(const ArrayNames& names, const Read& read) {
  std::vector<RecordArray> out;
  out.push_back(read("input", names.input));
  if (!names.target.empty()) {
    out.push_back(read("target", names.target));
  }
  for (const std::string& name : names.extra) {
    out.push_back(read(name, name));
  }
  return out;
}

template <class Entries, class Name>
[[noreturn]] void fail_missing(std::string_view where, std::string_view name, const fs::path& path,
                               const Entries& entries, const Name& name_of) {
  std::vector<std::string> known;
  for (const auto& entry : entries) {
    if (known.size() == 20) {
      known.push_back(concat("and ", entries.size() - 20, " more"));
      break;
    }
    known.push_back(quote(name_of(entry)));
  }
  fail<DataError>(where, "expected one of the arrays ", known.empty() ? "(there are none)" : join(known), ", got ",
                  quote(name), " (file ", quote(path.string()), ")");
}

std::string array_name(const formats::ZipEntry& entry) {
  return entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
}

}  // namespace

std::shared_ptr<Dataset<Batch>> npy_dataset(const NpyOptions& options) {
  std::vector<RecordArray> arrays;
  arrays.push_back(open_npy("input", options.input));
  if (!options.target.empty()) {
    arrays.push_back(open_npy("target", options.target));
  }
  for (const NamedFile& file : options.extra) {
    arrays.push_back(open_npy(file.name, file.path));
  }
  return std::make_shared<RecordDataset>("data.npy", std::move(arrays), options.split);
}

std::shared_ptr<Dataset<Batch>> npz_dataset(const fs::path& path, const ArrayNames& names) {
  return reading("data.npz", [&]() -> std::shared_ptr<Dataset<Batch>> {
    const formats::ZipReader zip(path, std::uint64_t{1} << 40);
    auto arrays = each_array(names, [&](const std::string& name, const std::string& member) {
      const formats::ZipEntry* entry = zip.find(member + ".npy");
      if (entry == nullptr) {
        fail_missing("data.npz", member, path, zip.entries(), array_name);
      }
      RecordArray out;
      out.name = name;
      out.path = path.string();
      out.member = member;
      const auto content = std::make_shared<const std::string>(zip.read(*entry));
      out.memory = content;
      const auto bytes = std::as_bytes(std::span(*content));
      describe(out, formats::parse_npy(bytes, out.source()), bytes);
      return out;
    });
    return std::make_shared<RecordDataset>("data.npz", std::move(arrays), names.split);
  });
}

std::shared_ptr<Dataset<Batch>> safetensors_dataset(const fs::path& path, const ArrayNames& names,
                                                    const SafetensorsOptions& options) {
  return reading("data.safetensors", [&]() -> std::shared_ptr<Dataset<Batch>> {
    // Both open the file; later reads use the mapping.
    const formats::SafetensorsReader reader(path);
    std::shared_ptr<const formats::MappedFile> file;
    if (!options.load) {
      file = std::make_shared<formats::MappedFile>(path, formats::Access::random, "data.safetensors");
    }
    auto arrays = each_array(names, [&](const std::string& name, const std::string& member) {
      const formats::SafetensorsEntry* entry = reader.find(member);
      if (entry == nullptr) {
        fail_missing("data.safetensors", member, path, reader.entries(), [](const auto& known) { return known.name; });
      }
      RecordArray out;
      out.name = name;
      out.path = path.string();
      out.member = member;
      out.dtype = entry->dtype;
      out.sizes = entry->sizes;
      if (file != nullptr) {
        out.file = file;
        out.bytes = file->bytes(entry->offset, entry->bytes);
      } else {
        const auto content = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(entry->bytes));
        reader.read(*entry, *content);
        out.bytes = *content;
        out.memory = content;
      }
      out.swapped = std::endian::native == std::endian::big && formats::dtype_size(entry->dtype) > 1;
      return out;
    });
    return std::make_shared<RecordDataset>("data.safetensors", std::move(arrays), names.split);
  });
}

}  // namespace danling::inline v0::data
