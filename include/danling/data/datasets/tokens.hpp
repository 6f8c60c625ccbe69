// Token files for language models: flat binary numbers, as nanoGPT and llm.c write them, mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/dataset.hpp>
#include <danling/formats/mapped_file.hpp>

namespace danling::inline v0::data {

/// Of the numbers in the files, which are little-endian.
enum class TokenType { uint16, uint32, int32 };

struct TokenOptions {
  TokenType dtype = TokenType::uint16;
  /// T, the tokens of a record.
  std::int64_t sequence_length = 1024;
  /// From the first token of a record to that of the next; T when there is none, so that each token is a target once.
  std::optional<std::int64_t> stride = {};
  /// At the beginning of each file, not tokens (1024 in the files of llm.c).
  std::int64_t header_bytes = 0;
  /// Tokens at or above it are refused when they are read, which a device could only do by an assertion.
  std::optional<std::int64_t> vocab_size = {};
  std::string split = {};
};

/// Record i is tokens [i * stride, i * stride + T) as input and those one further as target, both int64 [N, T].
/// Records do not cross files; the tokens at the end of a file that do not fill a record are left out.
class TokenDataset final : public Dataset<Batch> {
 public:
  /// @throws DataError that names the file when one cannot be mapped or does not hold whole tokens, or when no file
  /// holds a record; ConfigError for lengths that are not above 0.
  TokenDataset(std::span<const std::filesystem::path> paths, const TokenOptions& options);

  std::int64_t size() const override { return first_.back(); }
  /// @throws DataError with file and token for tokens below 0 or from `vocab_size` on.
  Batch get_batch(std::span<const std::int64_t> indices) override;
  /// `file`, and `token`: the place of the record's first one in it.
  State source_info(std::int64_t index) const override;
  std::string split() const override { return options_.split; }
  /// In all files.
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Place {
    std::size_t file;
    std::int64_t token;
  };
  Place find(std::int64_t index) const;

  TokenOptions options_;
  std::int64_t stride_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::unique_ptr<formats::MappedFile>> files_;
  std::vector<std::int64_t> first_;  // record of each file, and the number of all
};

std::shared_ptr<TokenDataset> token_dataset(const std::filesystem::path& path, const TokenOptions& options = {});
/// Several files, one after another.
std::shared_ptr<TokenDataset> token_dataset(const std::vector<std::filesystem::path>& paths,
                                            const TokenOptions& options = {});

}  // namespace danling::inline v0::data
