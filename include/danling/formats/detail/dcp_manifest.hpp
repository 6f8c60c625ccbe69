// The manifest of a sharded checkpoint. It is written last: a directory without one is incomplete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/detail/checksum.hpp>

namespace danling::inline v0::formats {

inline constexpr std::string_view dcp_manifest_name = "manifest.json";
/// The name of the entry that describes the whole state: its values and the keys of its tensors.
inline constexpr std::string_view dcp_tree_name = "danling.tree";

struct DcpManifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    Hash128 hash;  ///< the result of DcpFileWriter::commit(); for `.metadata` the hash of the whole file

    bool operator==(const File&) const = default;
  };

  std::int64_t world_size = 1;
  bool is_model = false;  ///< contains only weights
  // Progress of the run; unset for a state without it.
  std::optional<std::int64_t> epoch = std::nullopt;
  std::optional<std::int64_t> global_step = std::nullopt;
  std::optional<std::int64_t> micro_step = std::nullopt;
  std::optional<std::int64_t> result = std::nullopt;  ///< index of the result that belongs to the state
  std::optional<double> score = std::nullopt;
  std::vector<File> files;

  bool operator==(const DcpManifest&) const = default;
};

/// Returns one line of JSON, whose last member is the hash of the text before it.
std::string write_dcp_manifest(const DcpManifest& manifest);
/// Parses a manifest. @throws CheckpointError if it is damaged or has a newer version
DcpManifest read_dcp_manifest(std::string_view text, std::string_view source);
/// Reads the manifest in `directory`; returns nullopt if there is none. @throws CheckpointError
std::optional<DcpManifest> find_dcp_manifest(const std::filesystem::path& directory);

}  // namespace danling::inline v0::formats
