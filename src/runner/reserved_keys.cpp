// The table of reserved keys and its parser.
#include <runner/reserved_keys.hpp>

#include <charconv>
#include <span>

namespace danling::inline v0::detail {
namespace {

/// `keys` of one feature with their defaults (none: null), in `section` or at the top of the table, in the order of a
/// saved config.
struct Row {
  std::string_view section, keys, feature;
};

constexpr std::string_view replicas = "fault tolerance across replica groups (TorchFT)";

constexpr Row optim[] = {
    {"", "foreach capturable differentiable", "optimizer implementations of Python's torch.optim (use optim.fused)"}};

constexpr Row checkpoint[] = {
    {"", "dedicated_async_process_group=true async_process_group_backend=gloo",
     "a group of processes for saves, which here do not communicate"},
    {"", "enable_ft_dataloader_checkpoints=false ft_replica_id ft_dataloader_checkpoint_prefix=ft-replica", replicas}};

constexpr Row parallel_axes[] = {
    {"", "use_device_mesh=true mesh_device_type", "PyTorch's DeviceMesh (the grid of processes is parallel.axes)"},
    {"", "loss_parallel", "PyTorch's context for losses of sharded logits (use parallel::VocabParallelCrossEntropy)"}};

constexpr Row fsdp[] = {
    {"", "mesh shard_placement_fn ignored_params", "an argument of PyTorch's fully_shard that is an object of Python"}};

constexpr Row compile[] = {
    {"", "options precompile_artifact_dir", "torch.compile's code generator, which is Python's"},
    {"", "optimize_ddp=ddp_optimizer", "torch.compile's partition of graphs for DistributedDataParallel"}};

constexpr Row process[] = {{"gc", "interval generation=1 disable_automatic=true",
                            "pacing of Python's garbage collector, which C++ does not have"},
                           {"fp8", "enabled recipe recipe_cls recipe_kwargs group", "fp8"}};

template <class T>
bool reads_as(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

ConfigTree value_of(std::string_view word) {
  std::int64_t integer = 0;
  double number = 0;
  if (word.empty()) return {};
  if (word == "[]") return ConfigTree(ConfigTree::List{});
  if (word == "true" || word == "false") return ConfigTree(word == "true");
  if (reads_as(word, integer)) return ConfigTree(integer);
  return reads_as(word, number) ? ConfigTree(number) : ConfigTree(std::string(word));
}

void set(ConfigTree& tree, std::string_view path, ConfigTree value) {
  const auto dot = path.find('.');
  ConfigTree& entry = tree[path.substr(0, dot)];
  if (dot == std::string_view::npos) {
    entry = std::move(value);
  } else {
    set(entry, path.substr(dot + 1), std::move(value));
  }
}

std::vector<ReservedKey> read(std::span<const Row> rows) {
  std::vector<ReservedKey> out;
  for (const Row& row : rows) {
    if (!row.section.empty()) {
      out.push_back({row.section, {}, row.feature});
    }
    for (std::string_view left = row.keys; !left.empty();) {
      const std::string_view word = left.substr(0, left.find(' '));
      left.remove_prefix(std::min(word.size() + 1, left.size()));
      const auto equals = word.find('=');
      ConfigTree value = value_of(equals == std::string_view::npos ? "" : word.substr(equals + 1));
      if (row.section.empty()) {
        out.push_back({word.substr(0, equals), std::move(value), row.feature});
      } else {
        set(out.back().value, word.substr(0, equals), std::move(value));
      }
    }
  }
  return out;
}

}  // namespace

const ReservedKeys& reserved_keys() {
  static const ReservedKeys keys = {read(optim),         read(checkpoint), read(process),
                                    read(parallel_axes), read(fsdp),       read(compile)};
  return keys;
}

}  // namespace danling::inline v0::detail
