#include <danling/checkpoint/sharded.hpp>

#include <algorithm>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>

#include <checkpoint/memory.hpp>
#include <checkpoint/nested_state.hpp>
#include <checkpoint/sharded_plan.hpp>
#include <checkpoint/sharded_write.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::DcpReader;
using formats::RecordTree;

// Builds the state of a tree; skipped tensors are missing in maps, and null in lists.
class ShardLoader {
 public:
  ShardLoader(DcpReader& reader, const ShardSelector& wanted) : reader_(reader), wanted_(wanted) {}

  State load(const RecordTree& tree) {
    if (tree.is_tensor()) {
      return tensor(tree.tensor()).value_or(State());
    }
    if (tree.is_map()) {
      State::Map out;
      for (const auto& [key, value] : tree.map()) {
        if (!value.is_tensor()) {
          out.append(key, load(value));
        } else if (auto read = tensor(value.tensor())) {
          out.append(key, std::move(*read));
        }
      }
      return out;
    }
    if (tree.is_list() || tree.is_tuple()) {
      State::List out;
      for (const auto& item : tree.items()) {
        out.push_back(load(item));
      }
      return tree.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
    }
    return tree.is_bool()      ? State(tree.boolean())
           : tree.is_integer() ? State(tree.integer())
           : tree.is_double()  ? State(tree.number())
           : tree.is_string()  ? State(tree.string())
           : tree.is_bytes()   ? State(tree.bytes())
                               : State();
  }

 private:
  std::optional<State> tensor(const formats::TensorRecord& record) {
    const formats::DcpEntry* entry = reader_.storage_entry(record.storage);
    if (entry == nullptr) {  // a strided, small tensor inside a pickled value
      const at::Tensor holder =
          take_memory({static_cast<std::int64_t>(reader_.storage_size(record.storage))}, at::kByte);
      reader_.read_storage(
          record.storage, 0,
          {static_cast<std::byte*>(holder.mutable_data_ptr()), static_cast<std::size_t>(holder.numel())});
      at::Tensor out = take_memory({0}, to_scalar_type(record.dtype));
      out.set_(holder.storage(), record.offset, record.sizes, record.strides);
      return State(out.set_requires_grad(record.requires_grad));
    }
    ShardBox box;
    if (wanted_) {
      auto asked = wanted_(entry->name, entry->sizes);
      if (!asked) {
        return std::nullopt;
      }
      box = std::move(*asked);
    }
    if (box.offsets.empty() && box.sizes.empty()) {
      box = {std::vector<std::int64_t>(entry->sizes.size(), 0), entry->sizes};
    }
    check<CheckpointError>(std::all_of(box.sizes.begin(), box.sizes.end(), [](std::int64_t size) { return size >= 0; }),
                           "checkpoint.read", "expected sizes of 0 or more for ", quote(entry->name), ", got [",
                           join(box.sizes), "]");
    at::Tensor out = take_memory(box.sizes, to_scalar_type(entry->dtype));
    if (out.numel() > 0) {
      reader_.read(*entry, box.offsets, box.sizes, {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
    }
    return State(out.set_requires_grad(entry->requires_grad));
  }

  DcpReader& reader_;
  const ShardSelector& wanted_;
};

// Throws the first error of any rank.
void throw_first(const Group& group, const std::string& error) {
  const auto errors = group.all_gather(error);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) {
      throw CheckpointError(group.alone() ? errors[rank] : concat("rank ", rank, ": ", errors[rank]));
    }
  }
}

template <class Body>
std::string error_of_body(Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "unknown error" : error.what();
  }
  return {};
}

}  // namespace

void save_sharded(const ShardedState& state, const fs::path& directory, const Group& group) {
  SavePlan plan;
  throw_first(group, error_of_body([&] {
                check<CheckpointError>(
                    group.rank() != 0 || !formats::is_dcp(directory), "checkpoint.write",
                    "expected a directory without a checkpoint, got one: ", quote(directory.string()));
                if (group.rank() == 0) {
                  remove_reports(directory, group.size());  // left by a save that was killed
                }
                plan = take_apart(state);
              }));
  const auto positions = assign_items(group.all_gather(pack_items(plan.items)), group.rank());
  ShardReport report;
  throw_first(group, error_of_body([&] {
                report = write_shard(directory, group.rank(), work_of(std::move(plan), positions), /*verify=*/false);
                if (group.rank() > 0) {
                  leave_report(directory, group.rank(), report);
                }
              }));
  throw_first(
      group, error_of_body([&] {
        if (group.rank() == 0) {
          std::vector<ShardReport> reports;
          reports.push_back(std::move(report));
          for (auto& other : await_reports(directory, group.size(), [] { return std::string(); }, group.timeout())) {
            reports.push_back(std::move(other));
          }
          complete_checkpoint(directory, std::move(reports), {});
        }
      }));
}

State load_sharded(const fs::path& checkpoint, const ShardSelector& wanted) {
  const fs::path directory = resolve_sharded(checkpoint);
  DcpReader reader(directory);
  return with_memory(directory, "its tensors", [&] {
    const RecordTree& tree = reader.tree();
    if (!reader.unread().empty()) {
      throw CheckpointError(reader.unread().begin()->second);
    }
    check<CheckpointError>(reader.manifest() || reader.find(formats::dcp_tree_name) == nullptr, "checkpoint.read",
                           "expected a manifest, got none: the save was not completed (directory ",
                           quote(directory.string()), ")");
    return decode_nested(ShardLoader(reader, wanted).load(tree));
  });
}

fs::path resolve_sharded(const fs::path& checkpoint) { return formats::resolve_dcp(checkpoint); }

bool is_sharded(const fs::path& checkpoint) { return formats::is_dcp(resolve_sharded(checkpoint)); }

}  // namespace danling::inline v0
