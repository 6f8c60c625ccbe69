#include "pickle_graph.hpp"

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
      charge(texts_[index].size() + kBlock);
      return texts_[index];
    case Kind::bytes:
      charge(texts_[index].size() + kBlock);
      return Bytes{texts_[index]};
    case Kind::tensor:
      charge(16 * tensors_[index].sizes.size() + 2 * kBlock);
      return tensors_[index];
    case Kind::list:
      return RecordTree(convert_items(items_[index], depth));
    case Kind::tuple:
      return RecordTree(RecordTree::Tuple{convert_items(items_[index], depth)});
    case Kind::map:
      return RecordTree(convert_map(items_[index], depth));
    default:
      refuse("plain values and tensors, got ", kKindNames[static_cast<int>(from.kind)], " as a value");
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
  charge(numbers.empty() ? 0 : kBlock);
  out.reserve(numbers.size());
  for (const auto number : numbers) {
    out.push_back(convert(number, depth + 1));
  }
  return out;
}

RecordTree::Map PickleGraph::convert_map(const std::vector<std::uint32_t>& pairs, std::size_t depth) {
  check_depth(depth);
  RecordTree::Map out;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    // In a growing table, with an index beside it; the table's content is charged once with the value.
    charge(2 * sizeof(RecordTree::Entry) - sizeof(RecordTree) + sizeof(Key) + 2 * kBlock);
    const Node& key = nodes_[pairs[i]];
    if (key.kind != Kind::text && key.kind != Kind::integer) {
      refuse("a string or an integer as key, got ", kKindNames[static_cast<int>(key.kind)]);
    }
    if (key.kind == Kind::text) {
      const auto& name = texts_[static_cast<std::size_t>(key.integer)];
      charge(2 * (name.size() + kBlock));
      out.set(name, convert(pairs[i + 1], depth + 1));
    } else {
      out.set(key.integer, convert(pairs[i + 1], depth + 1));
    }
  }
  return out;
}

}  // namespace danling::inline v0::formats
