#include <danling/data/datasets/tokens.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>

#include <data/datasets/records.hpp>

namespace danling::inline v0::data {

namespace {

std::size_t token_width(TokenType type) { return type == TokenType::uint16 ? 2 : 4; }

/// Reads the little-endian number at `bytes`, which need not be aligned.
template <class T>
std::int64_t token_at(const std::byte* bytes) {
  std::array<std::byte, sizeof(T)> raw;
  std::memcpy(raw.data(), bytes, sizeof(T));
  if constexpr (std::endian::native == std::endian::big) {
    std::reverse(raw.begin(), raw.end());
  }
  return std::bit_cast<T>(raw);
}

/// Widens T + 1 tokens to T inputs and T targets; returns true if all are in [0, vocab).
template <class T>
bool widen(const std::byte* from, std::int64_t length, std::int64_t vocab, std::int64_t* input, std::int64_t* target) {
  bool valid = true;
  for (std::int64_t t = 0; t < length; ++t) {
    input[t] = token_at<T>(from + static_cast<std::size_t>(t) * sizeof(T));
    valid &= static_cast<std::uint64_t>(input[t]) < static_cast<std::uint64_t>(vocab);
  }
  std::copy(input + 1, input + length, target);
  target[length - 1] = token_at<T>(from + static_cast<std::size_t>(length) * sizeof(T));
  return valid && static_cast<std::uint64_t>(target[length - 1]) < static_cast<std::uint64_t>(vocab);
}

}  // namespace

TokenDataset::TokenDataset(std::span<const std::filesystem::path> paths, const TokenOptions& options)
    : options_(options), stride_(options.stride.value_or(options.sequence_length)) {
  constexpr std::string_view where = "data.tokens";
  // Limits that prevent overflow of sums.
  constexpr std::int64_t most = std::int64_t{1} << 48;
  check<ConfigError>(!paths.empty(), where, "expected at least one file, got none");
  check<ConfigError>(options.sequence_length > 0 && options.sequence_length < most, where,
                     "expected a sequence_length above 0, got ", options.sequence_length);
  check<ConfigError>(stride_ > 0 && stride_ < most, where, "expected a stride above 0, got ", stride_);
  check<ConfigError>(options.header_bytes >= 0 && options.header_bytes < most, where,
                     "expected header_bytes of at least 0, got ", options.header_bytes);
  check<ConfigError>(options.vocab_size.value_or(1) > 0, where, "expected a vocab_size above 0, got ",
                     options.vocab_size.value_or(1));
  first_.push_back(0);
  const auto width = static_cast<std::int64_t>(token_width(options.dtype));
  for (const auto& path : paths) {
    files_.push_back(std::make_unique<formats::MappedFile>(path, formats::Access::random, where));
    const std::int64_t bytes = static_cast<std::int64_t>(files_.back()->size()) - options.header_bytes;
    check<DataError>(bytes >= 0, where, "expected a header of ", options.header_bytes, " bytes, got a file of ",
                     files_.back()->size(), " (file ", quote(path.string()), ")");
    check<DataError>(bytes % width == 0, where, "expected whole tokens of ", width, " bytes, got ", bytes,
                     " bytes: the file was cut off, or has another dtype (file ", quote(path.string()), ")");
    const std::int64_t tokens = bytes / width;
    num_tokens_ += tokens;
    const std::int64_t records =
        tokens > options.sequence_length ? (tokens - options.sequence_length - 1) / stride_ + 1 : 0;
    first_.push_back(first_.back() + records);
  }
  check<DataError>(size() > 0, where, "expected a file of at least ", options.sequence_length + 1,
                   " tokens, which a record and its target take, got ", num_tokens_, " tokens (file ",
                   quote(paths.front().string()), paths.size() > 1 ? " and others)" : ")");
}

TokenDataset::Place TokenDataset::find(std::int64_t index) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), index);
  const auto file = static_cast<std::size_t>(after - first_.begin()) - 1;
  return {file, (index - first_[file]) * stride_};
}

Batch TokenDataset::get_batch(std::span<const std::int64_t> indices) {
  check_indices(indices, size(), "data.tokens");
  const std::int64_t length = options_.sequence_length;
  const std::size_t width = token_width(options_.dtype);
  const std::int64_t vocab = options_.vocab_size.value_or(std::int64_t{1} << 32);
  const auto rows = static_cast<std::int64_t>(indices.size());
  Batch batch;
  batch.num_tokens = rows * length;
  batch.input = at::empty({rows, length}, at::kLong);
  batch.target = at::empty({rows, length}, at::kLong);
  auto* input = batch.input.mutable_data_ptr<std::int64_t>();
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  const std::uint64_t bytes = static_cast<std::uint64_t>(length + 1) * width;
  const auto offset_of = [&](const Place& place) {
    return static_cast<std::uint64_t>(options_.header_bytes) + static_cast<std::uint64_t>(place.token) * width;
  };
  std::vector<bool> checked(files_.size());
  for (const std::int64_t index : indices) {
    const Place place = find(index);
    if (!checked[place.file]) {
      files_[place.file]->check_size();
      checked[place.file] = true;
    }
    files_[place.file]->prefetch(offset_of(place), bytes);
  }
  for (const std::int64_t index : indices) {
    const Place place = find(index);
    const formats::MappedFile& file = *files_[place.file];
    const std::byte* from = file.bytes(offset_of(place), bytes).data();
    const bool valid = options_.dtype == TokenType::uint16   ? widen<std::uint16_t>(from, length, vocab, input, target)
                       : options_.dtype == TokenType::uint32 ? widen<std::uint32_t>(from, length, vocab, input, target)
                                                             : widen<std::int32_t>(from, length, vocab, input, target);
    for (std::int64_t t = 0; !valid && t <= length; ++t) {
      const std::int64_t token = t < length ? input[t] : target[length - 1];
      check<DataError>(token >= 0 && token < vocab, "data.tokens", "expected a token in [0, ", vocab, "), got ", token,
                       " (file ", quote(file.path().string()), ", token ", place.token + t, ", record ", index, ")");
    }
    input += length;
    target += length;
  }
  return batch;
}

State TokenDataset::source_info(std::int64_t index) const {
  check_indices(std::span(&index, 1), size(), "data.tokens");
  const Place place = find(index);
  return State::Map{{"file", files_[place.file]->path().string()}, {"token", place.token}};
}

std::shared_ptr<TokenDataset> token_dataset(const std::filesystem::path& path, const TokenOptions& options) {
  return std::make_shared<TokenDataset>(std::span(&path, 1), options);
}

std::shared_ptr<TokenDataset> token_dataset(const std::vector<std::filesystem::path>& paths,
                                            const TokenOptions& options) {
  return std::make_shared<TokenDataset>(paths, options);
}

}  // namespace danling::inline v0::data
