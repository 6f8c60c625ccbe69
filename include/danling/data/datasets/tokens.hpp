// Token files for language models: flat binary numbers as written by nanoGPT and llm.c, memory-mapped.
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
#include <danling/formats/detail/mapped_file.hpp>

namespace danling::inline v0::data {

/// Dtype of the numbers in the files, little-endian.
enum class TokenType { uint16, uint32, int32 };

struct TokenOptions {
  TokenType dtype = TokenType::uint16;
  /// T, the number of tokens in a record.
  std::int64_t sequence_length = 1024;
  /// Distance between the first tokens of consecutive records; T by default, so that each token is a target once.
  std::optional<std::int64_t> stride = {};
  /// Size of the header that is skipped in each file (1024 in the files of llm.c).
  std::int64_t header_bytes = 0;
  /// Reading a token at or above this number throws; a device could only fail an assertion.
  std::optional<std::int64_t> vocab_size = {};
  std::string split = {};
};

/// Record i has the tokens [i * stride, i * stride + T) as input and the next token of each as target, both int64 [N,
/// T]. Records do not cross files; the last tokens of a file that do not fill a record are dropped.
class TokenDataset final : public Dataset<Batch> {
 public:
  /// @throws DataError with the file when one cannot be mapped or does not contain whole tokens, or when no file
  /// contains a record; ConfigError for lengths that are not above 0.
  TokenDataset(std::span<const std::filesystem::path> paths, const TokenOptions& options);

  std::int64_t size() const override { return first_.back(); }
  /// @throws DataError with file and token for tokens below 0 or at or above `vocab_size`.
  Batch get_batch(std::span<const std::int64_t> indices) override;
  /// Returns `file`, and `token`: the offset of the record's first token in it.
  State source_info(std::int64_t index) const override;
  std::string split() const override { return options_.split; }
  /// Returns the number of tokens in all files.
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
  std::vector<std::int64_t> first_;  // first record of each file, and the number of all
};

std::shared_ptr<TokenDataset> token_dataset(const std::filesystem::path& path, const TokenOptions& options = {});
/// Concatenates several files.
std::shared_ptr<TokenDataset> token_dataset(const std::vector<std::filesystem::path>& paths,
                                            const TokenOptions& options = {});

}  // namespace danling::inline v0::data
