// Reads pickled arrays and scalars of NumPy: little-endian numbers, no objects.
#include <algorithm>
#include <bit>
#include <limits>

#include <danling/core/error.hpp>

#include <formats/pickle_objects.hpp>

namespace danling::inline v0::formats {

using pickle::Callable;

namespace {

struct ArrayType {
  std::string_view code;
  DType dtype;
};

constexpr ArrayType array_types[] = {
    {"f8", DType::float64}, {"f4", DType::float32}, {"i8", DType::int64},   {"i4", DType::int32},
    {"i2", DType::int16},   {"i1", DType::int8},    {"u8", DType::uint64},  {"u4", DType::uint32},
    {"u2", DType::uint16},  {"u1", DType::uint8},   {"b1", DType::boolean},
};

}  // namespace

void PickleObjects::call_array(Callable callable, const std::vector<std::uint32_t>& arguments) {
  const auto need = [&](bool sound, const char* what) { check_arguments(sound, what, arguments.size()); };
  switch (callable) {
    case Callable::array_reconstruct:
      need(arguments.size() == 3 && global(arguments[0]).callable == Callable::array_class, "an array");
      push(Kind::array);
      return;
    case Callable::array_from_buffer: {  // (bytes, dtype, shape, order)
      need(arguments.size() == 4, "an array");
      const std::string& order = text(arguments[3]);
      need(order == "C" || order == "F", "an array");
      push(add_array(array_dtype(arguments[1]), arguments[2], arguments[0], order == "F"));
      return;
    }
    case Callable::array_scalar: {  // (dtype, bytes)
      need(arguments.size() == 2, "a scalar");
      const Node& bytes = node(arguments[1], Kind::bytes);
      push(add_array_number(array_dtype(arguments[0]), texts_[static_cast<std::size_t>(bytes.integer)]));
      return;
    }
    default: {  // a dtype: (code, align, copy)
      need(arguments.size() == 3, "a dtype");
      const std::string& name = text(arguments[0]);
      const std::size_t start = name.starts_with('<') || name.starts_with('|') ? 1 : 0;
      const auto* found = std::find_if(std::begin(array_types), std::end(array_types), [&](const ArrayType& type) {
        return type.code == std::string_view(name).substr(start);
      });
      if (found == std::end(array_types)) {
        refuse("an array of bools, integers, or floats of 32 or 64 bits, got numpy's dtype ",
               quote(std::string_view(name).substr(0, 40)));
      }
      push(Kind::array_dtype, static_cast<std::int64_t>(found->dtype));
    }
  }
}

DType PickleObjects::array_dtype(std::uint32_t number) const {
  return static_cast<DType>(node(number, Kind::array_dtype).integer);
}

// The state is (version, byte order, subarray, names, fields, size, alignment, flags[, metadata]).
void PickleObjects::check_array_dtype(DType dtype, std::uint32_t state) const {
  const auto& parts = tuple(state);
  check_arguments(parts.size() >= 5, "a dtype", parts.size());
  const std::string& order = text(parts[1]);
  if (order != "<" && (order != "|" || dtype_size(dtype) != 1)) {
    refuse("an array of little-endian numbers, got byte order ", quote(std::string_view(order).substr(0, 40)));
  }
  if (nodes_[parts[2]].kind != Kind::none || nodes_[parts[3]].kind != Kind::none) {
    refuse("an array of numbers, got one of structures");
  }
}

std::uint32_t PickleObjects::add_array(DType dtype, std::uint32_t shape, std::uint32_t bytes_node, bool column_major) {
  const std::string& bytes = texts_[static_cast<std::size_t>(node(bytes_node, Kind::bytes).integer)];
  const auto sizes = integers(shape);
  auto count = static_cast<std::int64_t>(dtype_size(dtype));
  bool overflow = false;
  for (const auto size : sizes) {
    overflow = overflow || size < 0 || __builtin_mul_overflow(count, size, &count);
  }
  if (overflow || static_cast<std::uint64_t>(count) != bytes.size()) {
    refuse("an array whose bytes fit its shape [", join(sizes), "] of ", dtype_name(dtype), ", got ", bytes.size(),
           " bytes");
  }
  // Strides in bytes; unused for an empty array.
  std::vector<std::int64_t> strides(sizes.size());
  auto stride = static_cast<std::int64_t>(dtype_size(dtype));
  for (std::size_t i = 0; i < sizes.size() && count > 0; ++i) {
    const std::size_t dim = column_major ? i : sizes.size() - 1 - i;
    strides[dim] = stride;
    stride *= sizes[dim];
  }
  return add_array_part(dtype, sizes, strides, bytes);
}

std::uint32_t PickleObjects::add_array_part(DType dtype, std::span<const std::int64_t> sizes,
                                            std::span<const std::int64_t> strides, std::string_view bytes) {
  if (sizes.empty()) {
    return add_array_number(dtype, bytes.substr(0, dtype_size(dtype)));
  }
  std::vector<std::uint32_t> items;
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    charge(2 * sizeof(std::uint32_t));
    const std::string_view part = bytes.substr(static_cast<std::size_t>(i * strides[0]));
    items.push_back(add_array_part(dtype, sizes.subspan(1), strides.subspan(1), part));
  }
  return add_entry(Kind::list, items_, std::move(items));
}

std::uint32_t PickleObjects::add_array_number(DType dtype, std::string_view bytes) {
  if (bytes.size() != dtype_size(dtype)) {
    refuse("a number of ", dtype_size(dtype), " bytes, got ", bytes.size());
  }
  std::uint64_t bits = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    bits = (bits << 8) | static_cast<unsigned char>(bytes[i]);
  }
  // Shifting up and down extends the sign of an integer narrower than 64 bits.
  const auto unused = static_cast<unsigned>(64 - 8 * bytes.size());
  switch (dtype) {
    case DType::boolean:
      return add(Kind::boolean, bits != 0 ? 1 : 0);
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::int8:
      return add(Kind::integer, static_cast<std::int64_t>(bits << unused) >> unused);
    case DType::float64:
      return add(Kind::number, static_cast<std::int64_t>(bits));
    case DType::float32: {
      const auto value = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      return add(Kind::number, std::bit_cast<std::int64_t>(value));
    }
    default:
      if (bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        refuse("an integer of at most 64 bits with its sign, got ", bits);
      }
      return add(Kind::integer, static_cast<std::int64_t>(bits));
  }
}

}  // namespace danling::inline v0::formats
