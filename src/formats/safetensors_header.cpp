#include <formats/safetensors_header.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr const char* metadata_key = "__metadata__";

// In the order of DType.
constexpr std::array<std::string_view, dtype_count> dtype_names = {
    "F64",         "F32",     "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ",
    "F8_E5M2FNUZ", "F8_E8M0", "I64", "I32",  "I16",     "I8",      "U8",
    "U16",         "U32",     "U64", "BOOL", "",        "C64",     "",
};

// Python's safetensors sorts data by element type: this is its order, from the last type to the first.
constexpr DType dtype_order[] = {
    DType::boolean,         DType::uint8,           DType::int8,
    DType::float8_e5m2,     DType::float8_e4m3fn,   DType::float8_e8m0fnu,
    DType::float8_e4m3fnuz, DType::float8_e5m2fnuz, DType::int16,
    DType::uint16,          DType::float16,         DType::bfloat16,
    DType::int32,           DType::uint32,          DType::float32,
    DType::complex64,       DType::float64,         DType::int64,
    DType::uint64,
};

std::size_t rank_of(DType dtype) {
  return static_cast<std::size_t>(std::find(std::begin(dtype_order), std::end(dtype_order), dtype) -
                                  std::begin(dtype_order));
}

std::optional<DType> find_dtype(std::string_view name) {
  const auto* found = std::find(dtype_names.begin(), dtype_names.end(), name);
  return found == dtype_names.end() || name.empty() ? std::nullopt
                                                    : std::optional(static_cast<DType>(found - dtype_names.begin()));
}

// Receives the parser's events without a tree or recursion; detects repeated keys.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(const std::string& source) : source_(source) {}

  SafetensorsHeader take() { return std::move(out_); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { refuse(to_text(std::int64_t{value})); }
  bool number_float(number_float_t, const string_t& text) override { refuse(text); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) {
      refuse(to_text(std::uint64_t{value}));
    }
    if (field_ == Field::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        refuse(to_text(std::uint64_t{value}));
      }
      out_.entries.back().sizes.push_back(static_cast<std::int64_t>(value));
    } else {
      if (num_offsets_ == 2) {
        refuse("a third number");
      }
      offsets_[num_offsets_++] = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      if (!out_.metadata.emplace(key_, value).second) {
        fail_at(concat("expected each metadata key once, got ", quote(key_), " twice"));
      }
      return true;
    }
    if (place_ != Place::tensor || field_ != Field::dtype) {
      refuse(quote(value));
    }
    const auto dtype = find_dtype(value);
    if (!dtype) {
      std::string known;
      for (const auto name : dtype_names) {
        known += name.empty() ? std::string() : concat(known.empty() ? "" : ", ", name);
      }
      fail_at(concat("expected an element type of ", known, ", got ", quote(value)));
    }
    out_.entries.back().dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::root;
    } else if (place_ == Place::root && key_ == metadata_key) {
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      place_ = Place::tensor;
      out_.entries.push_back({key_, DType::float32, {}, 0, 0});
      seen_ = 0;
    } else {
      refuse("a map");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (seen_ != 7) {
        fail_at("expected dtype, shape and data_offsets, got fewer");
      }
      // Still relative to the data. The caller checks it against the file size.
      out_.entries.back().offset = offsets_[0];
      out_.entries.back().bytes = offsets_[1] - offsets_[0];
    }
    place_ = place_ == Place::root ? Place::outside : Place::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == Field::dtype) {
      refuse("a list");
    }
    place_ = Place::list;
    num_offsets_ = 0;
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    if (field_ == Field::offsets && (num_offsets_ != 2 || offsets_[0] > offsets_[1])) {
      fail_at("expected data_offsets of begin and end, got others");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::tensor) {
      const std::array<std::string_view, 3> fields = {"dtype", "shape", "data_offsets"};
      const auto* found = std::find(fields.begin(), fields.end(), name);
      const auto number = static_cast<unsigned>(found - fields.begin());
      if (found == fields.end() || (seen_ & (1U << number)) != 0) {
        fail_at(concat("expected dtype, shape and data_offsets once each, got a key ", quote(name)));
      }
      seen_ |= 1U << number;
      field_ = static_cast<Field>(number);
      return true;
    }
    key_ = name;
    if (place_ == Place::root && !names_.insert(name).second) {
      fail_at("expected each name once, got it twice");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    // nlohmann's message starts with an error code and position.
    const std::string text = error.what();
    const auto reason = text.find("- ");
    fail<CheckpointError>("checkpoint.read", "expected a JSON header, got a syntax error at byte ", position, ": ",
                          reason == std::string::npos ? text : text.substr(reason + 2), " (", source_, ")");
  }

 private:
  enum class Place { outside, root, metadata, tensor, list };
  enum class Field { dtype, shape, offsets };

  // Refuses `what` at an unexpected position.
  [[noreturn]] void refuse(const std::string& what) const {
    switch (place_) {
      case Place::outside:
        fail<CheckpointError>("checkpoint.read", "expected a header that is a map, got ", what, " (", source_, ")");
      case Place::root:
        fail_at(concat("expected a map, got ", what));
      case Place::metadata:
        fail_at(concat("expected text at metadata key ", quote(key_), ", got ", what));
      default:
        fail_at(concat("expected ",
                       field_ == Field::dtype   ? "text at dtype"
                       : field_ == Field::shape ? "a list of sizes below 2^63 at shape"
                                                : "two whole numbers at data_offsets",
                       ", got ", what));
    }
  }

  [[noreturn]] void fail_at(const std::string& reason) const {
    const std::string& name = place_ == Place::tensor || place_ == Place::list ? out_.entries.back().name : key_;
    fail<CheckpointError>("checkpoint.read", reason, " (", source_,
                          place_ == Place::metadata ? std::string() : concat(", tensor ", quote(name)), ")");
  }

  const std::string& source_;
  SafetensorsHeader out_;
  std::unordered_set<std::string> names_;
  Place place_ = Place::outside;
  Field field_ = Field::dtype;
  std::string key_;
  unsigned seen_ = 0;
  std::size_t num_offsets_ = 0;
  std::array<std::uint64_t, 2> offsets_ = {};
};

std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail<CheckpointError>("checkpoint.write", "expected UTF-8 text, got ", quote(text));
  }
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) { return dtype_names.at(static_cast<std::size_t>(dtype)); }

bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const auto left = rank_of(a.dtype);
  const auto right = rank_of(b.dtype);
  return left != right ? left > right : a.name < b.name;
}

std::uint64_t safetensors_bytes(const SafetensorsEntry& entry, std::uint64_t fallback) {
  // A size of 0 must not hide an overflow of the others, since strides are products of sizes.
  std::int64_t count = static_cast<std::int64_t>(dtype_size(entry.dtype));
  bool empty = false;
  for (const std::int64_t size : entry.sizes) {
    empty = empty || size == 0;
    if (size < 0 || (size > 0 && __builtin_mul_overflow(count, size, &count))) {
      return fallback;
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(count);
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_size, const std::string& source) {
  // Refused here, since the parser would stop at a NUL and skip a byte order mark.
  if (json.empty() || json.front() != '{' || json.find('\0') != std::string_view::npos) {
    fail<CheckpointError>("checkpoint.read", "expected a JSON header that begins with '{' and has no NUL, got ",
                          quote(json.substr(0, 20)), " (", source, ")");
  }
  HeaderParser parser(source);
  nlohmann::json::sax_parse(json.begin(), json.end(), &parser);
  SafetensorsHeader header = parser.take();
  auto& entries = header.entries;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes) != std::tie(b.offset, b.bytes)
               ? std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes)
               : safetensors_before(a, b);
  });
  const std::uint64_t start = json.size() + sizeof(std::uint64_t);
  const std::uint64_t data = file_size - start;
  std::uint64_t next = 0;
  for (auto& entry : entries) {
    const auto refuse = [&](const auto&... parts) {
      fail<CheckpointError>("checkpoint.read", parts..., " (", source, ", tensor ", quote(entry.name), ")");
    };
    if (entry.offset != next) {
      refuse("expected contiguous tensors, got one at offset ", entry.offset, " of the data after ", next, " bytes");
    }
    if (entry.bytes > data - next) {
      refuse("expected data of ", data, " bytes, got a tensor of ", entry.bytes, " bytes at offset ", next);
    }
    if (safetensors_bytes(entry, std::numeric_limits<std::uint64_t>::max()) != entry.bytes) {
      refuse("expected a shape that makes ", entry.bytes, " bytes of ", dtype_name(entry.dtype), ", got [",
             join(entry.sizes), "]");
    }
    next += entry.bytes;
    entry.offset += start;
  }
  if (next != data) {
    fail<CheckpointError>("checkpoint.read", "expected ", next, " bytes of data after the header, got ", data, " (",
                          source, ")");
  }
  return header;
}

std::string safetensors_header(const std::vector<const SafetensorsEntry*>& entries,
                               const SafetensorsMetadata& metadata) {
  std::string out = "{";
  const auto separate = [&] { out += out.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    out += concat("\"", metadata_key, "\":{");
    bool first = true;
    for (const auto& [key, value] : metadata) {
      out += concat(first ? "" : ",", json_text(key), ":", json_text(value));
      first = false;
    }
    out += "}";
  }
  std::uint64_t offset = 0;
  for (const auto* entry : entries) {
    separate();
    out += concat(json_text(entry->name), ":{\"dtype\":\"", safetensors_dtype(entry->dtype), "\",\"shape\":[",
                  join(entry->sizes, ","), "],\"data_offsets\":[", offset, ",", offset + entry->bytes, "]}");
    offset += entry->bytes;
  }
  out += "}";
  out.append((8 - out.size() % 8) % 8, ' ');
  return out;
}

}  // namespace danling::inline v0::formats
