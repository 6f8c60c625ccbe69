// The manifest of a sharded checkpoint: written last, so that a directory without one was not completed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/checksum.hpp>

namespace danling::inline v0::formats {

inline constexpr std::string_view dcp_manifest_name = "manifest.json";
/// The name of the entry that describes the whole state: its values, and where its tensors are.
inline constexpr std::string_view dcp_tree_name = "danling.tree";

struct DcpManifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    Hash128 hash;  ///< that of DcpFileWriter::commit(), or of the whole file for `.metadata`

    bool operator==(const File&) const = default;
  };

  std::int64_t world_size = 1;
  bool is_model = false;  ///< weights alone
  // Progress of the run; nothing for a state without it.
  std::optional<std::int64_t> epoch = std::nullopt;
  std::optional<std::int64_t> global_step = std::nullopt;
  std::optional<std::int64_t> micro_step = std::nullopt;
  std::optional<std::int64_t> result = std::nullopt;  ///< index of the result that the state was saved with
  std::optional<double> score = std::nullopt;
  std::vector<File> files;

  bool operator==(const DcpManifest&) const = default;
};

/// One line of JSON; the last member is the hash of the text before it.
std::string write_dcp_manifest(const DcpManifest& manifest);
/// @throws CheckpointError for damage and for a newer version
DcpManifest read_dcp_manifest(std::string_view text, std::string_view source);
/// The manifest in `directory`; nothing if it has none. @throws CheckpointError
std::optional<DcpManifest> find_dcp_manifest(const std::filesystem::path& directory);

}  // namespace danling::inline v0::formats
