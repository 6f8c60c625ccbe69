#include <checkpoint/sharded_write.hpp>

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_file.hpp>
#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/file.hpp>

#include <checkpoint/counters.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::DcpEntry;
using formats::DcpManifest;
using formats::RecordTree;

constexpr const char* values_file = "__values.distcp";
constexpr std::int64_t host_piece = std::int64_t{1} << 24;

fs::path report_path(const fs::path& directory, int rank) { return directory / concat(".report-", rank); }
fs::path failure_path(const fs::path& directory, int rank) { return directory / concat(".failed-", rank); }

// Streams the elements in row-major order; from a device through one host buffer.
void give_elements(const at::Tensor& tensor, const formats::PieceSink& sink) {
  const at::Tensor dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  const auto size = static_cast<std::int64_t>(dense.nbytes());
  if (dense.device().is_cpu()) {
    sink({static_cast<const std::byte*>(dense.const_data_ptr()), static_cast<std::size_t>(size)});
    return;
  }
  const at::Tensor flat = dense.view({-1}).view(at::kByte);
  const at::Tensor buffer = at::empty({std::min(host_piece, size)}, at::TensorOptions().dtype(at::kByte));
  for (std::int64_t done = 0; done < size; done += host_piece) {
    const std::int64_t count = std::min(host_piece, size - done);
    buffer.narrow(0, 0, count).copy_(flat.narrow(0, done, count));
    sink({static_cast<const std::byte*>(buffer.const_data_ptr()), static_cast<std::size_t>(count)});
  }
}

RecordTree keys_of(const std::vector<Key>& path) {
  RecordTree::Tuple out;
  for (const auto& key : path) {
    out.items.push_back(key.is_string() ? RecordTree(key.string()) : RecordTree(key.integer()));
  }
  return RecordTree(std::move(out));
}

std::vector<Key> path_of_keys(const RecordTree& keys) {
  std::vector<Key> out;
  for (const auto& key : keys.tuple()) {
    out.push_back(key.is_string() ? Key(key.string()) : Key(key.integer()));
  }
  return out;
}

RecordTree places_of(const std::vector<std::pair<std::string, std::vector<Key>>>& tensors) {
  RecordTree::List out;
  for (const auto& [name, path] : tensors) {
    RecordTree::Tuple place;
    place.items = {name, keys_of(path)};
    out.emplace_back(std::move(place));
  }
  return RecordTree(std::move(out));
}

std::string pack_report(const ShardReport& report) {
  RecordTree out = RecordTree::Map();
  if (report.file) {
    out["file"] =
        RecordTree::List{report.file->name, static_cast<std::int64_t>(report.file->size), to_hex(report.file->hash)};
  }
  // Describes each box as a whole tensor: the metadata format accepts boxes only if they form a whole.
  RecordTree::List entries;
  for (const auto& entry : report.entries) {
    const auto numbers = [](const std::vector<std::int64_t>& values) {
      RecordTree::Tuple tuple;
      tuple.items.assign(values.begin(), values.end());
      return RecordTree(std::move(tuple));
    };
    const auto& chunk = entry.chunks.front();
    RecordTree::Tuple fields;
    fields.items = {entry.name,
                    keys_of(entry.path),
                    static_cast<std::int64_t>(entry.dtype),
                    entry.requires_grad,
                    numbers(entry.sizes),
                    numbers(chunk.offsets),
                    numbers(chunk.sizes),
                    chunk.file,
                    static_cast<std::int64_t>(chunk.offset),
                    static_cast<std::int64_t>(chunk.length)};
    entries.emplace_back(std::move(fields));
  }
  out["entries"] = std::move(entries);
  out["values"] = report.values;
  out["tensors"] = places_of(report.tensors);
  return formats::write_pickle(out, {});
}

ShardReport unpack_report(const fs::path& path) {
  const RecordTree tree =
      formats::read_pickle(formats::InputFile(path).text(), concat("file ", quote(path.string()))).tree;
  ShardReport out;
  if (const RecordTree* written = tree.find("file")) {
    out.file =
        DcpManifest::File{written->list().at(0).string(), static_cast<std::uint64_t>(written->list().at(1).integer()),
                          formats::parse_hash128(written->list().at(2).string()).value()};
  }
  const auto numbers = [](const RecordTree& tuple) {
    std::vector<std::int64_t> values;
    for (const auto& item : tuple.tuple()) {
      values.push_back(item.integer());
    }
    return values;
  };
  for (const auto& item : tree.at("entries").list()) {
    const auto& fields = item.tuple();
    out.entries.push_back(
        {fields.at(0).string(),
         path_of_keys(fields.at(1)),
         true,
         static_cast<formats::DType>(fields.at(2).integer()),
         fields.at(3).boolean(),
         numbers(fields.at(4)),
         {{numbers(fields.at(5)), numbers(fields.at(6)), fields.at(7).string(),
           static_cast<std::uint64_t>(fields.at(8).integer()), static_cast<std::uint64_t>(fields.at(9).integer())}}});
  }
  out.values = tree.at("values");
  for (const auto& place : tree.at("tensors").list()) {
    out.tensors.emplace_back(place.tuple().at(0).string(), path_of_keys(place.tuple().at(1)));
  }
  return out;
}

// Adds the keys of maps that `into` lacks.
void join_values(RecordTree& into, RecordTree&& other) {
  if (!into.is_map() || !other.is_map()) {
    return;
  }
  for (const auto& [key, value] : other.map()) {
    if (RecordTree* there = into.map().find(key)) {
      join_values(*there, RecordTree(value));
    } else {
      into.map().append(key, value);
    }
  }
}

// Checks that no lower rank has a value at the place of this tensor: a reader could not put the tensor there.
void check_place(const RecordTree& values, const std::string& name, const std::vector<Key>& path) {
  const RecordTree* at = &values;
  for (const auto& key : path) {
    if (at == nullptr) {
      break;
    }
    if (at->is_map()) {
      at = at->map().find(key);
    } else if (at->is_list() || at->is_tuple()) {
      const auto index = static_cast<std::size_t>(key.integer());
      at = index < at->items().size() ? &at->items()[index] : nullptr;
    } else {
      at = nullptr;
    }
  }
  check<CheckpointError>(at != nullptr && at->is_null(), "checkpoint.write",
                         "expected a tensor on all ranks that have the key, got another value on one (key ",
                         quote(name), ")");
}

bool is_model_alone(const RecordTree& values) {
  return values.is_map() && std::all_of(values.map().begin(), values.map().end(), [](const auto& entry) {
           return entry.key == Key("model") || entry.key == Key("ema") || entry.key == Key("models");
         });
}

}  // namespace

ShardWork work_of(SavePlan plan, const std::vector<std::size_t>& positions) {
  ShardWork out;
  for (const auto& item : plan.items) {
    out.tensors.emplace_back(item.name, item.path);
  }
  for (const auto position : positions) {
    out.items.push_back(std::move(plan.items[position]));
  }
  out.values = std::move(plan.values);
  return out;
}

ShardReport write_shard(const fs::path& directory, int rank, const ShardWork& work, bool verify) {
  std::error_code error;
  fs::create_directories(directory, error);  // on failure, creating the file fails too
  ShardReport out{std::nullopt, {}, work.values, work.tensors};
  if (work.items.empty()) {
    return out;
  }
  const std::string name = concat("__", rank, "_0.distcp");
  formats::DcpFileWriter file(directory / name);
  for (const auto& item : work.items) {
    const bool empty = item.tensor.numel() == 0;  // then the item is the whole tensor
    const auto sizes = empty ? item.place.sizes : item.tensor.sizes().vec();
    const auto offsets = empty ? std::vector<std::int64_t>(sizes.size(), 0) : item.place.offsets;
    const auto place = file.add_tensor(item.dtype, sizes, item.tensor.requires_grad(), [&](const auto& sink) {
      if (!empty) {
        give_elements(item.tensor, sink);
      }
    });
    out.entries.push_back({item.name,
                           item.python_path,
                           true,
                           item.dtype,
                           item.tensor.requires_grad(),
                           item.place.sizes,
                           {{offsets, sizes, name, place.offset, place.length}}});
  }
  const formats::Hash128 hash = file.commit();
  if (verify) {
    formats::DcpFile(directory / name).verify();
  }
  out.file = DcpManifest::File{name, file.size(), hash};
  return out;
}

void leave_report(const fs::path& directory, int rank, const ShardReport& report) {
  std::error_code error;
  fs::create_directories(directory, error);
  formats::replace_file(report_path(directory, rank), pack_report(report));
}

void leave_failure(const fs::path& directory, int rank, const std::string& text) noexcept {
  try {
    formats::replace_file(failure_path(directory, rank), text);
  } catch (const std::exception&) {
    // The disk may be full. Rank 0 receives the error with the next call of all ranks.
  }
}

void remove_reports(const fs::path& directory, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    std::error_code error;
    fs::remove(report_path(directory, rank), error);
    fs::remove(failure_path(directory, rank), error);
  }
}

std::vector<ShardReport> await_reports(const fs::path& directory, int world_size,
                                       const std::function<std::string()>& gives_up,
                                       std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<ShardReport> out;
  auto pause = std::chrono::milliseconds(1);
  for (int rank = 1; rank < world_size;) {
    std::error_code missing;
    if (fs::exists(report_path(directory, rank), missing)) {
      try {
        out.push_back(unpack_report(report_path(directory, rank)));
      } catch (const StateError& error) {
        fail<CheckpointError>("checkpoint.write", "expected a report of rank ", rank, ", got ", error.what());
      }
      ++rank;
      continue;
    }
    if (fs::exists(failure_path(directory, rank), missing)) {
      throw CheckpointError(concat("rank ", rank, ": ", formats::InputFile(failure_path(directory, rank)).text()));
    }
    if (const std::string reason = gives_up(); !reason.empty()) {
      throw CheckpointError(reason);
    }
    check<CheckpointError>(std::chrono::steady_clock::now() < deadline, "checkpoint.write",
                           "expected the shard of rank ", rank, " within ", timeout.count(), " ms, got none in ",
                           quote(directory.string()), "; all ranks must see the same directory");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  return out;
}

DcpManifest complete_checkpoint(const fs::path& directory, std::vector<ShardReport> reports, const ShardNotes& notes) {
  DcpManifest manifest;
  manifest.world_size = static_cast<std::int64_t>(reports.size());
  manifest.score = notes.score;
  RecordTree values = std::move(reports.front().values);
  std::vector<std::pair<std::string, std::vector<Key>>> tensors;
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  std::vector<DcpEntry> entries;
  std::unordered_map<std::string, std::size_t> numbers;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    auto& report = reports[rank];
    if (rank > 0) {
      join_values(values, std::move(report.values));
    }
    for (auto& tensor : report.tensors) {
      if (known.insert(tensor.first).second) {
        names.push_back(tensor.first);
        tensors.push_back(std::move(tensor));
      }
    }
    for (auto& entry : report.entries) {
      const auto [found, added] = numbers.try_emplace(entry.name, entries.size());
      if (added) {
        entries.push_back(std::move(entry));
      } else {
        entries[found->second].chunks.push_back(std::move(entry.chunks.front()));
      }
    }
    if (report.file) {
      manifest.files.push_back(*report.file);
    }
  }
  for (const auto& [name, path] : tensors) {
    check_place(values, name, path);
  }
  // In the order of the state, independent of the rank that wrote them.
  std::unordered_map<std::string, std::size_t> order;
  for (const auto& name : names) {
    order.emplace(name, order.size());
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const auto& a, const auto& b) { return order.at(a.name) < order.at(b.name); });

  formats::DcpFileWriter file(directory / values_file);
  const auto add = [&](const std::string& name, std::vector<Key> path, const RecordTree& value) {
    const auto place = file.add_value(value);
    entries.push_back({name,
                       std::move(path),
                       false,
                       formats::DType::float32,
                       false,
                       {},
                       {{{}, {}, values_file, place.offset, place.length}}});
  };
  for (auto& leaf : leaves_of_values(values, names)) {
    add(leaf.name, std::move(leaf.path), leaf.value);
  }
  RecordTree described = RecordTree::Map();
  described["values"] = values;
  described["tensors"] = places_of(tensors);
  add(std::string(formats::dcp_tree_name), {Key(formats::dcp_tree_name)}, described);
  const formats::Hash128 hash = file.commit();
  manifest.files.push_back({values_file, file.size(), hash});

  const std::string metadata = formats::write_dcp_metadata(entries);
  formats::replace_file(directory / formats::dcp_metadata_name, metadata);
  manifest.files.push_back(
      {std::string(formats::dcp_metadata_name), metadata.size(), formats::hash128(std::as_bytes(std::span(metadata)))});

  manifest.is_model = is_model_alone(values);
  if (const auto counters = counters_of(values)) {
    manifest.epoch = counters->epoch;
    manifest.global_step = counters->global_step;
    manifest.micro_step = counters->micro_step;
  }
  manifest.result = result_of(values);
  remove_reports(directory, static_cast<int>(reports.size()));
  formats::replace_file(directory / formats::dcp_manifest_name, formats::write_dcp_manifest(manifest));
  return manifest;
}

}  // namespace danling::inline v0
