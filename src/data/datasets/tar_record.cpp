// One record of a shard: its members, decoded by name.
#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/data/datasets/image.hpp>
#include <danling/data/datasets/tar_records.hpp>
#include <danling/formats/npy.hpp>

#include <data/datasets/records.hpp>
#include <formats/json_tree.hpp>

namespace danling::inline v0::data {

namespace {

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::int64_t integer_of(std::string_view text) {
  constexpr std::string_view spaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(spaces);
  const std::string_view digits =
      first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(spaces) - first + 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check<DataError>(!digits.empty() && error == std::errc() && end == digits.data() + digits.size(), "data.tar_shards",
                   "expected an integer, got ", quote(text.substr(0, 40)));
  return value;
}

at::Tensor array_of(const std::string& content) {
  const auto bytes = std::as_bytes(std::span(content));
  const formats::NpyArray array = formats::parse_npy(bytes, "in a shard");
  RecordArray one;  // one record, which is the whole array
  one.bytes = bytes.subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes));
  one.dtype = array.dtype;
  one.sizes = array.sizes;
  one.sizes.insert(one.sizes.begin(), 1);
  one.fortran_order = array.fortran_order;
  one.swapped = array.swapped;
  return one.gather(std::array<std::int64_t, 1>{0}).squeeze(0);
}

State value_of(std::string_view kind, std::string content, const formats::ImageDecodeOptions& images) {
  static constexpr std::array<std::string_view, 3> image_kinds = {"jpg", "jpeg", "png"};
  static constexpr std::array<std::string_view, 7> integers = {"cls", "cls2", "class", "count", "index", "inx", "id"};
  static constexpr std::array<std::string_view, 3> texts = {"txt", "text", "transcript"};
  static constexpr std::array<std::string_view, 2> trees = {"json", "jsn"};
  if (is_one_of(kind, image_kinds)) {
    return image_tensor(content, images);
  }
  if (is_one_of(kind, integers)) {
    return integer_of(content);
  }
  if (is_one_of(kind, texts)) {
    return content;
  }
  if (is_one_of(kind, trees)) {
    return formats::json_tree<State>(content, false, [] { return std::string_view("in a shard"); });
  }
  return kind == "npy" ? State(array_of(content)) : State(Bytes{std::move(content)});
}

}  // namespace

std::vector<std::string> TarRecord::names() const {
  std::vector<std::string> out;
  for (const Member& member : members_) {
    out.push_back(member.name);
  }
  return out;
}

const TarRecord::Member* TarRecord::find(std::string_view names) const {
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(';', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.name == name; });
    if (found != members_.end()) {
      return &*found;
    }
    begin = end + 1;
  }
  return nullptr;
}

const TarRecord::Member& TarRecord::at(std::string_view names) const {
  const Member* const found = find(names);
  if (found == nullptr) {
    fail<DataError>("data.tar_shards", "expected a member ", quote(names), ", got [", join(this->names()), "] (",
                    where(), ")");
  }
  return *found;
}

std::string TarRecord::bytes(const Member& member) const {
  return archive_->read({.name = member.name, .header = offset_, .offset = member.offset, .size = member.size});
}

State TarRecord::value(const Member& member, const formats::ImageDecodeOptions& images) const {
  const std::size_t dot = member.name.rfind('.');
  std::string content = bytes(member);
  try {
    return value_of(std::string_view(member.name).substr(dot + 1), std::move(content), images);
  } catch (const DataError& error) {
    throw DataError(concat(error.what(), " (member ", quote(member.name), ", ", where(), ")"));
  }
}

std::string TarRecord::where() const {
  return concat("key ", quote(key_), ", file ", quote(shard().string()), ", offset ", offset_);
}

}  // namespace danling::inline v0::data
