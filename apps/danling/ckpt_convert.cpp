// danling ckpt convert: writes the tensors of a file in another format, with other types, names or parts.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <tuple>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>
#include <danling/formats/pth.hpp>

#include "arguments.hpp"
#include "cast.hpp"
#include "ckpt.hpp"
#include "convert_plan.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
using danling::detail::quote;
using danling::formats::AtomicFile;
using danling::formats::dtype_size;
using danling::formats::PieceSink;

const std::initializer_list<Option> option_list = {
    {"--part", "NAME", "only the weights of a full checkpoint: model or ema"},
    {"--key", "PREFIX", "only values at or below this key; names omit it"},
    {"--dtype", "TYPE", "convert floating-point tensors to this type: float32, bfloat16, float16, ..."},
    {"--map", "OLD=NEW", "rename the prefix OLD of names to NEW; repeatable", true},
    {"--force", "", "replace OUT if it exists"},
    {"--help", "", "print this text"}};

using Identity =
    std::tuple<std::size_t, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>, DType, bool, bool>;

Identity identity_of(const TensorRecord& record) {
  return {record.storage, record.offset, record.sizes, record.strides, record.dtype, record.conjugate, record.negative};
}

DType output_type(const TensorRecord& record, std::optional<DType> dtype) {
  return dtype && is_floating(record.dtype) ? *dtype : record.dtype;
}

struct Stopped {
  int signal;
};

void check_stopped() {
  if (const int signal = danling::stop_signal(); signal != 0) {
    throw Stopped{signal};
  }
}

// Passes the elements of a tensor in row-major order, converted to `to`, to the sink.
void stream_elements(TensorFile& file, const TensorRecord& record, DType to, const PieceSink& sink) {
  ElementStream stream(file, record);
  std::vector<std::byte> buffer;
  const std::uint64_t most = piece_bytes / dtype_size(record.dtype);
  for (auto piece = stream.next(most); !piece.empty(); piece = stream.next(most)) {
    check_stopped();
    sink(to == record.dtype ? piece : cast_elements(piece, record.dtype, to, buffer));
  }
}

void write_safetensors(TensorFile& file, const std::vector<std::pair<std::string, TensorRecord>>& tensors,
                       std::optional<DType> dtype, AtomicFile& out) {
  auto sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  danling::formats::SafetensorsMetadata metadata = file.metadata();
  std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("danling."); });
  metadata.try_emplace("format", "pt");
  std::map<Identity, std::string> written;
  std::vector<danling::formats::SafetensorsEntry> entries;
  std::vector<TensorRecord> records;
  for (const auto& [name, record] : sorted) {
    const auto [found, added] = written.try_emplace(identity_of(record), name);
    if (added) {
      entries.push_back({name, output_type(record, dtype), record.sizes, 0, 0});
      records.push_back(record);
    } else {
      metadata[name] = found->second;
    }
  }
  danling::formats::write_safetensors(out, entries, metadata, [&](std::size_t i, const PieceSink& sink) {
    stream_elements(file, records[i], entries[i].dtype, sink);
  });
}

// One storage of a new .pth archive: an old storage, with its elements cast if `from` and `to` differ, or a single
// tensor.
struct NewStorage {
  std::size_t storage = 0;
  std::optional<TensorRecord> alone;
  DType from = DType::uint8;
  DType to = DType::uint8;
  std::uint64_t bytes = 0;
};

class PthPlan {
 public:
  PthPlan(TensorFile& file, const RecordTree& tree, std::optional<DType> dtype) : file_(file), dtype_(dtype) {
    uses_.resize(file.num_storages());
    for (const auto& leaf : leaves_of(tree)) {
      if (leaf.value->is_tensor()) {
        const TensorRecord& record = leaf.value->tensor();
        auto& use = uses_[record.storage];
        use.mixed = use.mixed || (use.first && *use.first != record.dtype) ||
                    file.storage_size(record.storage) % dtype_size(record.dtype) != 0;
        use.first = use.first.value_or(record.dtype);
      }
    }
    tree_ = rebuild(tree);
  }

  void write(AtomicFile& out) {
    std::vector<std::uint64_t> sizes;
    for (const auto& storage : storages_) {
      sizes.push_back(storage.bytes);
    }
    danling::formats::write_pth(out, tree_, sizes,
                                [&](std::size_t i, const PieceSink& sink) { stream(storages_[i], sink); });
  }

 private:
  struct Use {
    std::optional<DType> first;
    bool mixed = false;  // tensors of several types share it
  };

  std::size_t add(const Identity& identity, NewStorage storage) {
    const auto [found, added] = numbers_.try_emplace(identity, storages_.size());
    if (added) {
      storages_.push_back(std::move(storage));
    }
    return found->second;
  }

  TensorRecord place(TensorRecord record) {
    const DType to = output_type(record, dtype_);
    if (to != record.dtype && uses_[record.storage].mixed) {
      // Other views need the storage unchanged.
      const Identity identity = identity_of(record);
      const std::uint64_t bytes = num_elements(record) * dtype_size(to);
      const std::size_t number = add(identity, {record.storage, record, record.dtype, to, bytes});
      return {to, number, 0, record.sizes, row_major(record.sizes), record.requires_grad, false, false};
    }
    const std::uint64_t size = file_.storage_size(record.storage);
    const std::uint64_t bytes = to == record.dtype ? size : size / dtype_size(record.dtype) * dtype_size(to);
    const Identity whole(record.storage, -1, {}, {}, record.dtype == to ? DType::uint8 : to, false, false);
    record.storage = add(whole, {record.storage, std::nullopt, record.dtype, to, bytes});
    record.dtype = to;
    return record;
  }

  RecordTree rebuild(const RecordTree& tree) {
    if (tree.is_tensor()) {
      return place(tree.tensor());
    }
    if (tree.is_map()) {
      RecordTree::Map out;
      for (const auto& [key, value] : tree.map()) {
        out.set(key, rebuild(value));
      }
      return out;
    }
    if ((tree.is_list() || tree.is_tuple()) && !is_plain_list(tree)) {
      RecordTree::List out;
      for (const auto& item : tree.items()) {
        out.push_back(rebuild(item));
      }
      return tree.is_list() ? RecordTree(std::move(out)) : RecordTree(RecordTree::Tuple{std::move(out)});
    }
    return tree;
  }

  void stream(const NewStorage& storage, const PieceSink& sink) {
    if (storage.alone) {
      stream_elements(file_, *storage.alone, storage.to, sink);
      return;
    }
    std::vector<std::byte> piece;
    std::vector<std::byte> buffer;
    const std::uint64_t size = file_.storage_size(storage.storage);
    for (std::uint64_t done = 0; done < size; done += piece.size()) {
      check_stopped();
      piece.resize(static_cast<std::size_t>(std::min(piece_bytes, size - done)));
      file_.read(storage.storage, done, piece);
      sink(storage.from == storage.to ? piece : cast_elements(piece, storage.from, storage.to, buffer));
    }
  }

  TensorFile& file_;
  std::optional<DType> dtype_;
  std::vector<Use> uses_;
  std::map<Identity, std::size_t> numbers_;
  std::vector<NewStorage> storages_;
  RecordTree tree_;
};

std::string chosen_key(const Arguments& arguments) {
  const auto part = arguments.value("--part");
  const auto key = arguments.value("--key");
  danling::detail::check<danling::ConfigError>(!part || !key, "danling ckpt convert",
                                               "expected one of --part and --key, got both");
  danling::detail::check<danling::ConfigError>(!part || *part == "model" || *part == "ema", "danling ckpt convert",
                                               "expected --part model or ema, got ", quote(part.value_or("")));
  return part ? *part : key.value_or("");
}

// Returns the size of OUT in bytes.
std::uint64_t write(TensorFile& file, RecordTree tree, const std::vector<std::pair<std::string, std::string>>& mappings,
                    std::optional<DType> dtype, const std::filesystem::path& out_path) {
  AtomicFile out(out_path);
  if (out_path.extension() == ".safetensors") {
    write_safetensors(file, flatten(tree, mappings, "OUT is a safetensors file"), dtype, out);
  } else {
    if (!mappings.empty()) {
      RecordTree::Map flat;
      for (const auto& [name, record] : flatten(tree, mappings, "--map renames them")) {
        flat.set(name, record);
      }
      tree = std::move(flat);
    }
    PthPlan(file, tree, dtype).write(out);
  }
  check_stopped();
  out.commit();
  return out.size();
}

}  // namespace

int ckpt_convert(std::span<const std::string> words) {
  const Arguments arguments("danling ckpt convert", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling ckpt convert IN OUT [options]\n\n"
        "Writes OUT in the format of its ending: .pth or .pt (torch.load), .safetensors. Writes OUT atomically.\n"
        "Tied weights stay tied. A .pth keeps the tree and shared memory; a safetensors file is a flat map "
        "of\n"
        "tensors, keys joined by dots, each in row-major order. --map makes a .pth a flat map too.\n\n%s\n"
        "Example: danling ckpt convert best.pth model.safetensors --part ema --dtype bfloat16 --map module.=\n"
        "Exit code: 0; 2 after an error, 128 + signal after a signal; OUT is then unchanged.\n",
        describe(option_list).c_str());
    return 0;
  }
  constexpr auto where = "danling ckpt convert";
  arguments.expect(2, "two files, IN and OUT");
  const std::string& in = arguments.positional()[0];
  const std::filesystem::path out_path = arguments.positional()[1];
  const auto ending = out_path.extension();
  danling::detail::check<danling::ConfigError>(ending == ".pth" || ending == ".pt" || ending == ".safetensors", where,
                                               "expected OUT with the ending .pth, .pt or .safetensors, got ",
                                               quote(out_path.string()));
  // Renaming the new file to OUT would replace a device or a pipe.
  danling::detail::check<danling::ConfigError>(
      !std::filesystem::exists(out_path) || std::filesystem::is_regular_file(out_path), where,
      "expected a new file, got ", quote(out_path.string()), ", which is not a regular file");
  danling::detail::check<danling::ConfigError>(arguments.has("--force") || !std::filesystem::exists(out_path), where,
                                               "expected a new file, got ", quote(out_path.string()),
                                               ", which exists; --force replaces it");
  std::optional<DType> dtype;
  if (const auto name = arguments.value("--dtype")) {
    dtype = floating_dtype(*name);
  }
  std::vector<std::pair<std::string, std::string>> mappings;
  for (const auto& text : arguments.values("--map")) {
    mappings.push_back(parse_mapping(text));
  }

  TensorFile file(in);
  RecordTree tree = select(file, chosen_key(arguments));
  const danling::SignalGuard signals({SIGINT, SIGTERM, SIGHUP});
  std::uint64_t written = 0;
  try {
    written = write(file, std::move(tree), mappings, dtype, out_path);
  } catch (const Stopped& stopped) {
    std::fprintf(stderr, "stopped by %s; %s is unchanged\n", danling::signal_name(stopped.signal).c_str(),
                 out_path.c_str());
    return 128 + stopped.signal;
  }
  std::printf("%s: %s\n", out_path.c_str(), danling::format_bytes(written).c_str());
  return 0;
}

}  // namespace danling_command
