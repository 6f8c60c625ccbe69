// Loaders of a runner: options of a split from `dataloader` of the config.
#include <algorithm>

#include <danling/data/default_options.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {
namespace {

// The config key that set an option of a split.
template <class T>
std::string key_of(const DataloaderConfig& config, const std::string& split,
                   std::optional<T> DataloaderOverrides::* option, std::string_view name) {
  const auto own = config.splits.find(split);
  const bool by_split = own != config.splits.end() && (own->second.*option).has_value();
  return by_split ? concat("dataloader.", split, ".", name) : concat("dataloader.", name);
}

}  // namespace

data::LoaderOptions TorchRunnerBase::loader_options(const std::string& split, bool stream,
                                                    const data::LoaderDefaults& declared) {
  static constexpr std::string_view where = "runner.build_dataloaders";
  const DataloaderConfig& all = config().dataloader;
  const DataloaderOverrides asked = all.for_split(split);
  const auto training = train_splits();
  const bool train = std::find(training.begin(), training.end(), split) != training.end();
  data::LoaderOptions out = data::default_options(declared, train, stream);
  out.batch_size = asked.batch_size.value_or(out.batch_size);
  out.shuffle = asked.shuffle.value_or(out.shuffle);
  out.drop_last = asked.drop_last.value_or(out.drop_last);
  out.collation = asked.collation.value_or(out.collation);
  out.num_workers = asked.num_workers.value_or(out.num_workers);
  check<ConfigError>(out.num_workers > 0 || !asked.prefetch_factor, where, "expected workers for ",
                     quote(key_of(all, split, &DataloaderOverrides::prefetch_factor, "prefetch_factor")), ", got ",
                     asked.prefetch_factor.value_or(0), " with num_workers 0 in split ", quote(split),
                     "; set dataloader.num_workers");
  check<ConfigError>(out.num_workers > 0 || !asked.persistent_workers.value_or(false), where, "expected workers for ",
                     quote(key_of(all, split, &DataloaderOverrides::persistent_workers, "persistent_workers")),
                     ", got true with num_workers 0 in split ", quote(split), "; set dataloader.num_workers");
  out.prefetch_factor = asked.prefetch_factor;
  out.persistent_workers = asked.persistent_workers.value_or(out.persistent_workers);
  out.in_order = asked.in_order.value_or(out.in_order);
  out.snapshot_every_n_steps = asked.snapshot_every_n_steps;
  out.pin_memory = asked.pin_memory.value_or(false) && pins(split);
  // Ranks train in lockstep. If they cannot join the updates of ranks with more batches, the kept last batches are
  // padded; an evaluation counts each sample once.
  const AxisPlace share = parallelism().data_share();
  out.shard = {.rank = share.rank,
               .world_size = share.size,
               .padding = train && !out.drop_last && !stream && parallelism().needs_equal_batches(),
               .num_shares = share.num_shares};
  out.seed = seed();
  out.split = split;
  return out;
}

// Page-locked memory needs a device. Logged when a loop begins, since the log file is not open yet.
bool TorchRunnerBase::pins(const std::string& split) {
  if (!device().is_cpu()) {
    return true;
  }
  if (pin_warning_.empty()) {
    const std::string key = key_of(config().dataloader, split, &DataloaderOverrides::pin_memory, "pin_memory");
    pin_warning_ = concat("expected a GPU for ", quote(key), ", got a run on the CPU; batches stay in ordinary memory");
  }
  return false;
}

}  // namespace danling::inline v0
