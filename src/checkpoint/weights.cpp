#include <danling/checkpoint/weights.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <c10/core/Storage.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/sharded.hpp>

#include <checkpoint/identity.hpp>
#include <checkpoint/memory.hpp>
#include <checkpoint/nested_state.hpp>
#include <checkpoint/shards.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0 {
namespace {

using formats::SafetensorsEntry;
using formats::SafetensorsMetadata;

void check_dense(const at::Tensor& tensor, const std::string& name) {
  const auto refuse = [&](const auto&... got) {
    fail<CheckpointError>("checkpoint.write", "expected a dense tensor, got ", got..., " (key ", quote(name), ")");
  };
  if (!tensor.defined()) {
    refuse("an undefined one");
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested() || !tensor.has_storage() ||
      tensor.is_meta() || !to_file_dtype(tensor.scalar_type())) {
    refuse("one of dtype ", c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
           " that is sparse, quantized, nested or without data");
  }
}

using Weights = std::map<std::string, at::Tensor>;

void flatten(const State& state, const std::string& prefix, Weights& out) {
  for (const auto& [key, value] : state.map()) {
    check<CheckpointError>(key.is_string(), "checkpoint.write", "expected names as keys, got the integer ", key.text(),
                           " (key ", quote(prefix), "); safetensors files hold only named tensors, save a .pth");
    const std::string name = prefix.empty() ? key.string() : concat(prefix, ".", key.string());
    if (value.is_map()) {
      flatten(value, name, out);
      continue;
    }
    check<CheckpointError>(value.is_tensor(), "checkpoint.write", "expected tensors, got ", value.kind(), " (key ",
                           quote(name), "); safetensors files hold only named tensors, save a .pth");
    check_dense(value.tensor(), name);
    check<CheckpointError>(out.emplace(name, value.tensor()).second, "checkpoint.write",
                           "expected a name for each tensor, got two tensors whose keys, joined by dots, are ",
                           quote(name));
  }
}

State load_tensors(const formats::SafetensorsReader& reader) {
  State::Map out;
  std::vector<std::span<std::byte>> destinations;
  for (const auto& entry : reader.entries()) {
    const at::Tensor tensor = take_memory(entry.sizes, to_scalar_type(entry.dtype));
    destinations.emplace_back(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
    out.set(entry.name, tensor);
  }
  reader.read_all(destinations);
  for (const auto& [name, target] : reader.aliases()) {
    out.set(name, out.at(target).tensor());
  }
  return decode_nested(std::move(out));
}

}  // namespace

void save_safetensors(const State& weights, const std::filesystem::path& path, SafetensorsMetadata metadata) {
  check<CheckpointError>(weights.is_map(), "checkpoint.write", "expected a map of tensors, got ", weights.kind());
  Weights named;
  flatten(encode_nested(weights), "", named);
  metadata.try_emplace("format", "pt");

  std::map<TensorIdentity, std::string> written;
  std::vector<SafetensorsEntry> entries;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    const auto [found, added] = written.try_emplace(identity_of(tensor), name);
    if (added) {
      entries.push_back({name, *to_file_dtype(tensor.scalar_type()), tensor.sizes().vec(), 0, 0});
      tensors.push_back(tensor);
      continue;
    }
    check<CheckpointError>(metadata.try_emplace(name, found->second).second, "checkpoint.write",
                           "expected metadata without a key ", quote(name), ", which is the name of a tied tensor");
  }

  formats::AtomicFile out(path);
  formats::write_safetensors(out, entries, metadata, [&](std::size_t i, const formats::PieceSink& sink) {
    const at::Tensor host = tensors[i].detach().cpu().resolve_conj().resolve_neg().contiguous();
    sink({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  });
  out.commit();
}

State load_safetensors(const std::filesystem::path& path) {
  const formats::SafetensorsReader reader(path);
  std::uint64_t total = 0;
  for (const auto& entry : reader.entries()) {
    total += entry.bytes;
  }
  return with_memory(path, concat(total, " bytes of tensors"), [&] { return load_tensors(reader); });
}

State load_weights(const std::filesystem::path& path) {
  if (is_sharded(path)) {
    return load_sharded(path);
  }
  std::error_code missing;
  if (std::filesystem::is_directory(path, missing)) {
    return load_weights(weights_in(path));
  }
  return is_shard_index(path)            ? load_shards(path)
         : formats::is_safetensors(path) ? load_safetensors(path)
                                         : load_file(path);
}

}  // namespace danling::inline v0
