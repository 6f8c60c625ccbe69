#include <danling/formats/detail/dcp_manifest.hpp>

#include <cmath>
#include <span>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/json_lines.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view manifest_kind = "danling-sharded-checkpoint";
constexpr std::int64_t dcp_manifest_version = 1;
constexpr std::string_view hash_member = ", \"xxh3\": \"";
constexpr std::uint64_t max_manifest = std::uint64_t{1} << 26;  // half a million files

std::string hash_of(std::string_view text) { return to_hex(hash128(std::as_bytes(std::span(text)))); }

}  // namespace

std::string write_dcp_manifest(const DcpManifest& manifest) {
  std::string out =
      concat("{\"format\": \"", manifest_kind, "\", \"version\": ", dcp_manifest_version,
             ", \"world_size\": ", manifest.world_size, ", \"is_model\": ", manifest.is_model ? "true" : "false");
  const auto number = [&](std::string_view key, const std::optional<std::int64_t>& value) {
    if (value) {
      out += concat(", \"", key, "\": ", *value);
    }
  };
  number("epoch", manifest.epoch);
  number("global_step", manifest.global_step);
  number("micro_step", manifest.micro_step);
  number("result", manifest.result);
  if (manifest.score && std::isfinite(*manifest.score)) {
    const std::string text = to_text(*manifest.score);
    out += concat(", \"score\": ", text);
  }
  out += ", \"files\": [";
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const auto& file = manifest.files[i];
    out += concat(i == 0 ? "" : ", ", "{\"name\": \"", file.name, "\", \"size\": ", file.size, ", \"xxh3\": \"",
                  to_hex(file.hash), "\"}");
  }
  out += "]";
  return concat(out, hash_member, hash_of(out), "\"}\n");
}

DcpManifest read_dcp_manifest(std::string_view text, std::string_view source) {
  const auto refuse = [&](const auto& expected) {
    fail<CheckpointError>("checkpoint.read", "expected ", expected, ", got invalid data (", source, ")");
  };
  const std::size_t end = text.rfind(hash_member);
  if (end == std::string_view::npos ||
      text.substr(end + hash_member.size()) != hash_of(text.substr(0, end)) + "\"}\n") {
    refuse("a manifest that ends with the hash of its text");
  }
  DcpManifest out;
  try {
    const RecordTree tree = parse_json(text, source);
    if (tree.at("format").string() != manifest_kind || tree.at("version").integer() != dcp_manifest_version) {
      refuse(concat("a manifest of version ", dcp_manifest_version));
    }
    const auto number = [&](const char* key) {
      const RecordTree* value = tree.find(key);
      return value != nullptr ? std::optional(value->integer()) : std::nullopt;
    };
    out.world_size = tree.at("world_size").integer();
    out.is_model = tree.at("is_model").boolean();
    out.epoch = number("epoch");
    out.global_step = number("global_step");
    out.micro_step = number("micro_step");
    out.result = number("result");
    if (const RecordTree* score = tree.find("score")) {
      out.score = score->number();
    }
    for (const auto& file : tree.at("files").list()) {
      const auto hash = parse_hash128(file.at("xxh3").string());
      const auto size = file.at("size").integer();
      if (!hash || size < 0) {
        refuse("a size and a hash for each file");
      }
      out.files.push_back({file.at("name").string(), static_cast<std::uint64_t>(size), *hash});
    }
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  } catch (const StateError& error) {
    refuse(concat("the members of a manifest (", error.what(), ")"));
  }
  return out;
}

std::optional<DcpManifest> find_dcp_manifest(const std::filesystem::path& directory) {
  const auto path = directory / dcp_manifest_name;
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) {
    return std::nullopt;
  }
  const InputFile file(path);
  check<CheckpointError>(file.size() <= max_manifest, "checkpoint.read", "expected a manifest of at most ",
                         max_manifest, " bytes, got ", file.size(), " (file ", quote(path.string()), ")");
  return read_dcp_manifest(file.text(), concat("file ", quote(path.string())));
}

}  // namespace danling::inline v0::formats
