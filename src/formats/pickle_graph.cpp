#include <formats/pickle_graph.hpp>

#include <bit>

namespace danling::inline v0::formats {

RecordTree PickleGraph::convert(std::size_t number, std::size_t depth) {
  const Node& from = nodes_[number];
  const auto index = static_cast<std::size_t>(from.integer);
  charge(sizeof(RecordTree));
  switch (from.kind) {
    case Kind::none:
      return nullptr;
    case Kind::boolean:
      return from.integer != 0;
    case Kind::integer:
      return from.integer;
    case Kind::number:
      return std::bit_cast<double>(from.integer);
    case Kind::text:
      charge(texts_[index].size() + block_size);
      return texts_[index];
    case Kind::bytes:
      charge(texts_[index].size() + block_size);
      return Bytes{texts_[index]};
    case Kind::tensor:
      charge(16 * tensors_[index].sizes.size() + 2 * block_size);
      return tensors_[index];
    case Kind::list:
      return RecordTree(convert_items(items_[index], depth));
    case Kind::tuple:
      return RecordTree(RecordTree::Tuple{convert_items(items_[index], depth)});
    case Kind::map:
      return reads_records_ && !has_plain_keys(items_[index]) ? convert_pairs(items_[index], depth)
                                                              : RecordTree(convert_map(items_[index], depth));
    case Kind::record: {
      check_depth(depth);
      charge(2 * sizeof(RecordTree::Entry) + 4 * block_size);
      RecordTree::Map out;
      out.append("class", std::string(records_[index].name));
      out.append("state", convert(records_[index].state, depth + 1));
      return out;
    }
    case Kind::global:
      if (reads_records_ && globals_[index].callable == pickle::Callable::dtype) {
        charge(block_size);
        return std::string(dtype_name(globals_[index].dtype));
      }
      [[fallthrough]];
    default:
      refuse("plain values and tensors, got ", kind_names[static_cast<int>(from.kind)], " as a value");
  }
}

void PickleGraph::check_depth(std::size_t depth) const {
  if (depth >= max_depth) {
    refuse("at most ", max_depth, " levels of nesting, got more, or a value that contains itself");
  }
}

RecordTree::List PickleGraph::convert_items(const std::vector<std::uint32_t>& numbers, std::size_t depth) {
  check_depth(depth);
  RecordTree::List out;
  charge(numbers.empty() ? 0 : block_size);
  out.reserve(numbers.size());
  for (const auto number : numbers) {
    out.push_back(convert(number, depth + 1));
  }
  return out;
}

bool PickleGraph::has_plain_keys(const std::vector<std::uint32_t>& pairs) const {
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (nodes_[pairs[i]].kind == Kind::record) {
      return false;
    }
  }
  return true;
}

RecordTree PickleGraph::convert_pairs(const std::vector<std::uint32_t>& pairs, std::size_t depth) {
  check_depth(depth);
  RecordTree::List out;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    charge(4 * sizeof(RecordTree) + block_size);
    RecordTree::Tuple pair;
    pair.items.push_back(convert(pairs[i], depth + 1));
    pair.items.push_back(convert(pairs[i + 1], depth + 1));
    out.emplace_back(std::move(pair));
  }
  return RecordTree(std::move(out));
}

RecordTree::Map PickleGraph::convert_map(const std::vector<std::uint32_t>& pairs, std::size_t depth) {
  check_depth(depth);
  RecordTree::Map out;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    // Charges an entry of a growing table and of its index. The value's part is charged once, with the value.
    charge(2 * sizeof(RecordTree::Entry) - sizeof(RecordTree) + sizeof(Key) + 2 * block_size);
    const Node& key = nodes_[pairs[i]];
    if (key.kind != Kind::text && key.kind != Kind::integer) {
      refuse("a string or an integer as key, got ", kind_names[static_cast<int>(key.kind)]);
    }
    if (key.kind == Kind::text) {
      const auto& name = texts_[static_cast<std::size_t>(key.integer)];
      charge(2 * (name.size() + block_size));
      out.set(name, convert(pairs[i + 1], depth + 1));
    } else {
      out.set(key.integer, convert(pairs[i + 1], depth + 1));
    }
  }
  return out;
}

}  // namespace danling::inline v0::formats
