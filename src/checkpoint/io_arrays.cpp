#include <checkpoint/io_arrays.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <danling/formats/detail/mapped_file.hpp>
#include <danling/formats/detail/zip_reader.hpp>
#include <danling/formats/detail/zip_writer.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/npy.hpp>
#include <danling/formats/table.hpp>

#include <checkpoint/memory.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

constexpr auto saving = "checkpoint.save";
constexpr std::uint64_t largest_member = std::uint64_t{1} << 40;

at::Tensor tensor_of(std::span<const std::byte> content, const std::string& source) {
  const formats::NpyArray array = formats::parse_npy(content, source);
  std::vector<std::int64_t> sizes = array.sizes;
  if (array.fortran_order) {
    std::reverse(sizes.begin(), sizes.end());
  }
  at::Tensor out = take_memory(sizes, to_scalar_type(array.dtype));
  auto* const begin = static_cast<std::byte*>(out.mutable_data_ptr());
  if (array.bytes > 0) {
    std::memcpy(begin, content.data() + array.offset, array.bytes);
  }
  const std::size_t width = formats::dtype_size(array.dtype) / (out.is_complex() ? 2 : 1);
  for (std::size_t at = 0; array.swapped && at < array.bytes; at += width) {
    std::reverse(begin + at, begin + at + width);
  }
  if (array.dtype == formats::DType::boolean) {  // the file may hold any byte, a bool only 0 or 1
    std::transform(begin, begin + array.bytes, begin, [](std::byte b) { return std::byte{b != std::byte{0}}; });
  }
  if (array.fortran_order) {
    std::vector<std::int64_t> order(sizes.size());
    std::generate(order.begin(), order.end(), [n = std::ssize(order)]() mutable { return --n; });
    out = out.permute(order).contiguous();
  }
  return out;
}

struct NpyContent {
  std::string header;
  at::Tensor elements;
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(elements.const_data_ptr()), elements.nbytes()};
  }
};

NpyContent npy_of(const State& value, const std::string& path) {
  check<CheckpointError>(value.is_tensor() && value.tensor().defined(), saving, "expected a tensor for .npy, got ",
                         value.kind(), path.empty() ? "" : concat(" (key ", quote(path), ")"));
  const at::Tensor& tensor = value.tensor();
  const auto dtype = to_file_dtype(tensor.scalar_type());
  check<CheckpointError>(tensor.layout() == at::kStrided && !tensor.is_nested() && dtype && formats::has_npy(*dtype),
                         saving, "expected a dense tensor of a type that NumPy supports, got ",
                         c10::toString(tensor.scalar_type()), path.empty() ? "" : concat(" (key ", quote(path), ")"),
                         "; save a .pth or .safetensors");
  return {formats::npy_header(*dtype, tensor.sizes().vec()),
          tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()};
}

template <class T>
at::Tensor column_tensor(std::span<const T> values, c10::ScalarType dtype) {
  at::Tensor out = take_memory({static_cast<std::int64_t>(values.size())}, dtype);
  if (!values.empty()) {
    std::memcpy(out.mutable_data_ptr(), values.data(), values.size_bytes());
  }
  return out;
}

State column_state(const formats::Column& column) {
  switch (column.type()) {
    case formats::ColumnType::int64:
      return column_tensor(column.integers(), at::kLong);
    case formats::ColumnType::float64:
      return column_tensor(column.floats(), at::kDouble);
    case formats::ColumnType::boolean:
      return column_tensor(column.booleans(), at::kBool);
    case formats::ColumnType::text:
      break;
  }
  State::List out;
  for (std::size_t row = 0; row < column.size(); ++row) {
    out.emplace_back(column.texts()[row]);
  }
  return out;
}

char separator_of(const fs::path& file) {
  const std::string text = file.extension().string();
  return text == ".tsv" || text == ".TSV" ? '\t' : ',';
}

template <class T>
std::vector<T> values_of(const at::Tensor& column, c10::ScalarType dtype) {
  const at::Tensor values = column.detach().cpu().to(dtype).contiguous();
  const auto* begin = static_cast<const T*>(values.const_data_ptr());
  return {begin, begin + values.numel()};
}

formats::Column column_of(const std::string& name, const State& value) {
  formats::Column out;
  out.name = name;
  if (value.is_tensor() && value.tensor().defined() && value.tensor().dim() == 1 && !value.tensor().is_complex()) {
    const at::Tensor& tensor = value.tensor();
    if (tensor.is_floating_point()) {
      out.values = values_of<double>(tensor, at::kDouble);
    } else if (tensor.scalar_type() == at::kBool) {
      out.values = values_of<std::uint8_t>(tensor, at::kByte);
    } else {
      auto values = values_of<std::int64_t>(tensor, at::kLong);
      check<CheckpointError>(
          tensor.scalar_type() != at::kUInt64 ||
              std::none_of(values.begin(), values.end(), [](std::int64_t number) { return number < 0; }),
          saving, "expected integers below 2^63, got a larger one (key ", quote(name), ")");
      out.values = std::move(values);
    }
    return out;
  }
  check<CheckpointError>(value.is_list() || value.is_tuple(), saving,
                         "expected columns that are lists or tensors of one dimension, got ",
                         value.is_tensor() ? "another tensor" : value.kind(), " (key ", quote(name), ")");
  const auto& items = value.items();
  const auto all = [&](auto is) { return std::all_of(items.begin(), items.end(), is); };
  if (!items.empty() && all([](const State& item) { return item.is_integer(); })) {
    auto& numbers = out.values.emplace<std::vector<std::int64_t>>();
    std::transform(items.begin(), items.end(), std::back_inserter(numbers), [](const auto& i) { return i.integer(); });
  } else if (!items.empty() && all([](const State& i) { return i.is_integer() || i.is_double() || i.is_null(); })) {
    auto& numbers = out.values.emplace<std::vector<double>>();
    std::transform(items.begin(), items.end(), std::back_inserter(numbers), [](const State& item) {
      return item.is_null() ? std::numeric_limits<double>::quiet_NaN() : item.number();
    });
  } else if (!items.empty() && all([](const State& item) { return item.is_bool(); })) {
    auto& flags = out.values.emplace<std::vector<std::uint8_t>>();
    std::transform(items.begin(), items.end(), std::back_inserter(flags),
                   [](const State& item) { return static_cast<std::uint8_t>(item.boolean()); });
  } else {
    auto& texts = out.values.emplace<formats::TextColumn>();
    for (const State& item : items) {
      check<CheckpointError>(item.is_string() || item.is_null(), saving, "expected a column of one kind, got ",
                             item.kind(), " among others (key ", quote(name), ")");
      texts.push_back(item.is_null() ? std::string_view() : std::string_view(item.string()));
    }
  }
  return out;
}

}  // namespace

State load_npy(const fs::path& file) {
  const formats::MappedFile content(file, formats::Access::sequential);
  return with_memory(file, "its array",
                     [&] { return tensor_of(content.bytes(), concat("file ", quote(file.string()))); });
}

State load_npz(const fs::path& file) {
  const formats::ZipReader zip(file, largest_member);
  State::Map out;
  for (const auto& entry : zip.entries()) {
    const std::string content = with_memory(file, "its arrays", [&] { return zip.read(entry); });
    const std::string source = concat("file ", quote(file.string()), ", array ", quote(entry.name));
    const bool npy = entry.name.ends_with(".npy");
    out.set(npy ? entry.name.substr(0, entry.name.size() - 4) : entry.name,
            with_memory(file, "its arrays", [&] { return tensor_of(std::as_bytes(std::span(content)), source); }));
  }
  return out;
}

void save_npy(const State& object, const fs::path& file) {
  const NpyContent content = npy_of(object, "");
  formats::AtomicFile out(file);
  out.write(std::as_bytes(std::span(content.header)));
  out.write(content.bytes());
  out.commit();
}

void save_npz(const State& object, const fs::path& file) {
  check<CheckpointError>(object.is_map(), saving, "expected a map of tensors for .npz, got ", object.kind());
  formats::AtomicFile out(file);
  formats::ZipWriter zip(out);
  for (const auto& [key, value] : object.map()) {
    const std::string name = key.is_string() ? key.string() : key.text();
    const NpyContent content = npy_of(value, name);
    zip.add(name + ".npy", content.header.size() + content.bytes().size(), [&](const formats::PieceSink& sink) {
      sink(std::as_bytes(std::span(content.header)));
      sink(content.bytes());
    });
  }
  zip.finish();
  out.commit();
}

State load_table(const fs::path& file) {
  formats::CsvOptions options;
  options.separator = separator_of(file);
  const formats::Table table = formats::read_csv(file, options);
  State::Map out;
  for (const auto& column : table.columns()) {
    out.set(column.name, with_memory(file, "its columns", [&] { return column_state(column); }));
  }
  return out;
}

void save_table(const State& object, const fs::path& file) {
  check<CheckpointError>(object.is_map(), saving, "expected a map of columns for a table, got ", object.kind());
  std::vector<formats::Column> columns;
  for (const auto& [key, value] : object.map()) {
    columns.push_back(column_of(key.is_string() ? key.string() : key.text(), value));
    check<CheckpointError>(columns.back().size() == columns.front().size(), saving,
                           "expected columns of equal length, got ", columns.front().size(), " and ",
                           columns.back().size(), " rows (key ", quote(columns.back().name), ")");
  }
  formats::replace_file(file, formats::to_csv(formats::Table(std::move(columns)), separator_of(file)));
}

}  // namespace danling::inline v0::detail
