#include <checkpoint/sharded_plan.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/detail/dcp_manifest.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <checkpoint/nested_state.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0 {
namespace {

using formats::DcpChunk;
using formats::RecordTree;

std::string sizes_text(const std::vector<std::int64_t>& sizes) { return concat("[", join(sizes), "]"); }

std::string name_below(const std::string& path, const std::string& key) {
  return path.empty() ? key : concat(path, ".", key);
}

std::string key_text(const Key& key) { return key.is_string() ? key.string() : to_text(key.integer()); }

class Dismantler {
 public:
  explicit Dismantler(const ShardedState& state) : places_(state.places) {
    plan_.values = take(state.state, "");
    for (const auto& [name, place] : places_) {
      check<CheckpointError>(names_.contains(name), "checkpoint.write",
                             "expected a tensor for each place, got none (key ", quote(name), ")");
    }
  }

  SavePlan plan_;

 private:
  RecordTree take(const State& state, const std::string& name) {
    check<CheckpointError>(path_.size() <= formats::max_depth, "checkpoint.write", "expected at most ",
                           formats::max_depth, " levels of nesting, got more at ", quote(name.substr(0, 60)));
    if (state.is_tensor()) {
      add(state.tensor(), name);
      return nullptr;
    }
    if (state.is_map()) {
      RecordTree::Map out;
      for (const auto& [key, value] : state.map()) {
        path_.push_back(key);
        python_path_.emplace_back(key_text(key));
        out.append(key, take(value, name_below(name, key_text(key))));
        path_.pop_back();
        python_path_.pop_back();
      }
      return out;
    }
    if (state.is_list() || state.is_tuple()) {
      RecordTree::List out;
      for (std::size_t i = 0; i < state.items().size(); ++i) {
        const State& item = state.items()[i];
        path_.emplace_back(static_cast<std::int64_t>(i));
        python_path_.emplace_back(static_cast<std::int64_t>(i));
        const bool plain = item.is_integer() || item.is_double();  // avoids building paths in long lists of numbers
        out.push_back(take(item, plain ? std::string() : name_below(name, to_text(i))));
        path_.pop_back();
        python_path_.pop_back();
      }
      return state.is_list() ? RecordTree(std::move(out)) : RecordTree(RecordTree::Tuple{std::move(out)});
    }
    return to_record_tree(state);
  }

  void add(const at::Tensor& tensor, const std::string& name) {
    const auto dtype = tensor.defined() ? to_file_dtype(tensor.scalar_type()) : std::nullopt;
    check<CheckpointError>(tensor.defined() && dtype && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
                               !tensor.is_nested() && tensor.has_storage() && !tensor.is_meta(),
                           "checkpoint.write", "expected a dense tensor, got another one (key ", quote(name), ")");
    check<CheckpointError>(!name.empty() && name != formats::dcp_tree_name && names_.insert(name).second,
                           "checkpoint.write", "expected a name for each tensor, got ",
                           name.empty() ? "none for one" : "two", " (key ", quote(name), ")");
    ShardItem item{name, path_, python_path_, tensor, *dtype, {tensor.sizes().vec(), {}}};
    if (const auto found = places_.find(name); found != places_.end()) {
      item.place = found->second;
    } else {
      item.place.offsets.assign(static_cast<std::size_t>(tensor.dim()), 0);
    }
    bool fits = item.place.sizes.size() == static_cast<std::size_t>(tensor.dim()) &&
                item.place.offsets.size() == item.place.sizes.size();
    for (std::size_t d = 0; fits && d < item.place.sizes.size(); ++d) {
      const std::int64_t size = tensor.size(static_cast<std::int64_t>(d));
      fits = item.place.offsets[d] >= 0 && size <= item.place.sizes[d] &&
             (size == 0 || item.place.offsets[d] <= item.place.sizes[d] - size);
    }
    check<CheckpointError>(fits, "checkpoint.write", "expected a place with room for sizes ",
                           sizes_text(tensor.sizes().vec()), ", got offsets ", sizes_text(item.place.offsets), " in ",
                           sizes_text(item.place.sizes), " (key ", quote(name), ")");
    plan_.items.push_back(std::move(item));
  }

  const std::map<std::string, ShardPlace>& places_;
  std::unordered_set<std::string> names_;
  std::vector<Key> path_;
  std::vector<Key> python_path_;
};

// The description of an item for other ranks.
struct SharedItem {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> whole;
  DcpChunk box;

  std::uint64_t bytes(std::size_t width) const {
    return std::accumulate(
        box.sizes.begin(), box.sizes.end(), std::uint64_t{width},
        [](std::uint64_t product, std::int64_t size) { return product * static_cast<std::uint64_t>(size); });
  }
};

RecordTree tuple_of(const std::vector<std::int64_t>& values) {
  RecordTree::Tuple out;
  for (const auto value : values) {
    out.items.emplace_back(value);
  }
  return RecordTree(std::move(out));
}

std::vector<std::int64_t> integers_of(const RecordTree& tuple) {
  std::vector<std::int64_t> out;
  for (const auto& item : tuple.tuple()) {
    out.push_back(item.integer());
  }
  return out;
}

void find_leaves(const RecordTree& values, const std::unordered_set<std::string>& tensors,
                 const std::unordered_set<std::string>& above, ShardValue& at, std::vector<ShardValue>& out) {
  if (tensors.contains(at.name)) {
    return;
  }
  const auto below = [&](const Key& key, const RecordTree& value) {
    const std::string before = at.name;
    at.name = name_below(before, key_text(key));
    at.path.push_back(key.is_string() || !values.is_map() ? key : Key(key_text(key)));  // as Python's str(key)
    find_leaves(value, tensors, above, at, out);
    at.path.pop_back();
    at.name = before;
  };
  if (values.is_map()) {
    for (const auto& [key, value] : values.map()) {
      below(key, value);
    }
  } else if ((values.is_list() || values.is_tuple()) && above.contains(at.name)) {
    for (std::size_t i = 0; i < values.items().size(); ++i) {
      below(Key(static_cast<std::int64_t>(i)), values.items()[i]);
    }
  } else if (!at.path.empty()) {
    out.push_back({at.name, at.path, values});
  }
}

}  // namespace

RecordTree to_record_tree(const State& state) {
  if (state.is_map()) {
    RecordTree::Map out;
    for (const auto& [key, value] : state.map()) {
      out.append(key, to_record_tree(value));
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    RecordTree::List out;
    for (const auto& item : state.items()) {
      out.push_back(to_record_tree(item));
    }
    return state.is_list() ? RecordTree(std::move(out)) : RecordTree(RecordTree::Tuple{std::move(out)});
  }
  return state.is_bool()      ? RecordTree(state.boolean())
         : state.is_integer() ? RecordTree(state.integer())
         : state.is_double()  ? RecordTree(state.number())
         : state.is_string()  ? RecordTree(state.string())
         : state.is_bytes()   ? RecordTree(state.bytes())
                              : RecordTree();
}

SavePlan take_apart(const ShardedState& state) { return Dismantler({encode_nested(state.state), state.places}).plan_; }

std::vector<ShardValue> leaves_of_values(const RecordTree& values, const std::vector<std::string>& tensors) {
  const std::unordered_set<std::string> names(tensors.begin(), tensors.end());
  std::unordered_set<std::string> above;
  for (const auto& name : tensors) {
    for (std::size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
      above.insert(name.substr(0, at));
    }
  }
  std::vector<ShardValue> out;
  ShardValue at;
  find_leaves(values, names, above, at, out);
  return out;
}

std::string pack_items(const std::vector<ShardItem>& items) {
  RecordTree::List out;
  for (const auto& item : items) {
    RecordTree::Tuple fields;
    fields.items = {item.name,
                    std::string(formats::dtype_name(item.dtype)),
                    tuple_of(item.place.sizes),
                    tuple_of(item.place.offsets),
                    tuple_of(item.tensor.sizes().vec()),
                    static_cast<std::int64_t>(formats::dtype_size(item.dtype))};
    out.emplace_back(std::move(fields));
  }
  return formats::write_pickle(RecordTree(std::move(out)), {});
}

std::vector<std::size_t> assign_items(const std::vector<std::string>& packed, int rank) {
  struct Box {
    SharedItem item;
    std::uint64_t bytes;
    std::vector<std::pair<int, std::size_t>> holders;  // ranks, and the position of the item on each
  };
  std::vector<Box> boxes;
  std::map<std::string, std::vector<std::size_t>> tensors;  // the boxes of each tensor
  std::unordered_map<std::string, std::size_t> numbers;
  std::unordered_map<std::string, std::pair<int, SharedItem>> first;
  for (std::size_t r = 0; r < packed.size(); ++r) {
    const RecordTree items = formats::read_pickle(packed[r], concat("the tensors of rank ", r)).tree;
    for (std::size_t i = 0; i < items.list().size(); ++i) {
      const auto& fields = items.list()[i].tuple();
      SharedItem item{fields.at(0).string(), fields.at(1).string(), integers_of(fields.at(2)), {}};
      item.box.offsets = integers_of(fields.at(3));
      item.box.sizes = integers_of(fields.at(4));
      const auto& [rank_before, before] = first.try_emplace(item.name, static_cast<int>(r), item).first->second;
      check<CheckpointError>(before.dtype == item.dtype && before.whole == item.whole, "checkpoint.write",
                             "expected one dtype and one size on all ranks, got ", before.dtype, " ",
                             sizes_text(before.whole), " on rank ", rank_before, " and ", item.dtype, " ",
                             sizes_text(item.whole), " on rank ", r, " (key ", quote(item.name), ")");
      const bool empty = std::find(item.box.sizes.begin(), item.box.sizes.end(), 0) != item.box.sizes.end();
      if (empty && std::find(item.whole.begin(), item.whole.end(), 0) == item.whole.end()) {
        tensors[item.name];
        continue;  // no rows here
      }
      if (empty) {  // a tensor without elements: one box is the whole tensor
        item.box.offsets.assign(item.whole.size(), 0);
        item.box.sizes = item.whole;
      }
      const std::string key = concat(item.name, "\n", join(item.box.offsets), "\n", join(item.box.sizes));
      const auto [found, added] = numbers.try_emplace(key, boxes.size());
      if (added) {
        tensors[item.name].push_back(boxes.size());
        const std::uint64_t bytes = item.bytes(static_cast<std::size_t>(fields.at(5).integer()));
        boxes.push_back({std::move(item), bytes, {}});
      }
      boxes[found->second].holders.emplace_back(static_cast<int>(r), i);
    }
  }
  for (const auto& [name, parts] : tensors) {
    std::vector<DcpChunk> chunks;
    for (const auto part : parts) {
      chunks.push_back(boxes[part].item.box);
    }
    const std::string reason = formats::check_boxes(first.at(name).second.whole, chunks);
    check<CheckpointError>(reason.empty(), "checkpoint.write", reason, " (key ", quote(name), ")");
  }
  // Largest first; each goes to the rank with the fewest bytes so far among those that have the box.
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return boxes[a].bytes > boxes[b].bytes; });
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return boxes[i].holders.size() == 1; });
  std::vector<std::uint64_t> load(packed.size(), 0);
  std::vector<std::size_t> out;
  for (const auto number : order) {
    const Box& box = boxes[number];
    const auto holder = *std::min_element(box.holders.begin(), box.holders.end(), [&](const auto& a, const auto& b) {
      return load[static_cast<std::size_t>(a.first)] < load[static_cast<std::size_t>(b.first)];
    });
    load[static_cast<std::size_t>(holder.first)] += box.bytes;
    if (holder.first == rank) {
      out.push_back(holder.second);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace danling::inline v0
