// Whether all processes run the same: version, code and config; and what rank 0 decides for all.
#include <set>
#include <utility>

#include <c10/core/ScalarType.h>
#include <torch/version.h>

#include <danling/config/tree.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/state.hpp>
#include <danling/version.hpp>

#include "distributed/packing.hpp"
#include "runner/rank_messages.hpp"
#include "runner/setup.hpp"

namespace danling::inline v0 {
namespace {

// Those of a process: ranks may differ.
const std::set<std::string, std::less<>> of_process = {"device",         "num_threads", "console",
                                                       "workspace_root", "time_limit",  "ft.replica_id"};

void check_configs(const std::string& of_rank_0, const std::string& other, std::size_t rank) {
  if (other == of_rank_0) {
    return;
  }
  for (const Difference& difference : differences(from_yaml(of_rank_0, "rank 0"), from_yaml(other, "another rank"))) {
    check<ConfigError>(of_process.contains(difference.key), "runner.init_distributed",
                       "expected the same config on all ranks, got ", difference.key, ": ", difference.first,
                       " on rank 0 and ", difference.second, " on rank ", rank,
                       "; start all processes with the same file and options");
  }
}

}  // namespace

std::string BaseRunner::Setup::common_config_id() const {
  ConfigTree tree = to_tree(runner_.config());
  for (const std::string& key : of_process) {
    ConfigTree* section = &tree;
    std::string_view name = key;
    for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
      section = section->map().find(std::string(name.substr(0, dot)));
      name.remove_prefix(dot + 1);
    }
    section->map().erase(std::string(name));
  }
  return danling::config_id(to_yaml(tree));
}

// All ranks read the same list and throw alike.
void BaseRunner::Setup::agree_on_run() {
  if (runner_.group().alone()) {
    return;
  }
  detail::Packer mine;
  mine.text(concat("danling ", version, " with LibTorch ", TORCH_VERSION));
  mine.text(runner_.code_id());
  mine.text(to_yaml(to_tree(runner_.config())));
  mine.number(static_cast<std::int64_t>(runner_.seed_));
  mine.text(runner_.timestamp_);
  const auto all = detail::exchange(runner_.group(), mine.take());
  std::string version_of_0, code_of_0, config_of_0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    detail::Unpacker theirs(all[rank]);
    const std::string version_of_rank = theirs.text(), code = theirs.text(), config = theirs.text();
    const auto seed = static_cast<std::uint64_t>(theirs.number());
    if (rank == 0) {
      version_of_0 = version_of_rank, code_of_0 = code, config_of_0 = config;
      runner_.timestamp_ = theirs.text();
      runner_.use_seed(seed);
      continue;
    }
    check<DistributedError>(version_of_rank == version_of_0, "runner.init_distributed",
                            "expected the same library on all ranks, got ", version_of_0, " on rank 0 and ",
                            version_of_rank, " on rank ", rank);
    check<DistributedError>(code == code_of_0, "runner.init_distributed", "expected the same code on all ranks, got ",
                            quote(code_of_0), " on rank 0 and ", quote(code), " on rank ", rank,
                            "; start the same program from the same checkout everywhere");
    check_configs(config_of_0, config, rank);
  }
}

}  // namespace danling::inline v0
