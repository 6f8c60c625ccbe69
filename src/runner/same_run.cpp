// Checks that all processes run the same version, code and config, and sends rank 0's decisions to all.
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torch/version.h>

#include <danling/config/tree.hpp>
#include <danling/formats/detail/checksum.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/state.hpp>
#include <danling/tensors/nested_tensor.hpp>
#include <danling/version.hpp>

#include <distributed/packing.hpp>
#include <runner/agreed_error.hpp>
#include <runner/display.hpp>
#include <runner/rank_messages.hpp>
#include <runner/services.hpp>
#include <runner/setup.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

void add_to(formats::Hasher& hasher, const State& state) {
  if (state.is_map()) {
    for (const auto& entry : state.map()) {
      add_to(hasher, entry.value);
    }
  } else if (state.is_tensor()) {
    const bool nested = NestedTensor::is_nested(state.tensor());
    const at::Tensor whole = nested ? NestedTensor(state.tensor()).concat() : state.tensor();
    const at::Tensor flat = tensors::raw(whole.detach().cpu());
    hasher.update({static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes()});
  }
}

std::string hash_of(const State& weights) {
  formats::Hasher hasher;
  add_to(hasher, weights);
  return formats::to_hex(hasher.digest());
}

// Keys of a process: ranks may differ.
const std::set<std::string, std::less<>> of_process = {"device",    "num_threads",    "console",    "quiet",
                                                       "log_level", "workspace_root", "time_limit", "ft.replica_id"};

void check_configs(const std::string& of_rank_0, const std::string& other, std::size_t rank) {
  if (other == of_rank_0) {
    return;
  }
  for (const Difference& difference :
       find_differences(from_yaml(of_rank_0, "rank 0"), from_yaml(other, "another rank"))) {
    if (!of_process.contains(difference.key)) {
      detail::fail_agreed<ConfigError>(true, "runner.init_distributed", "expected the same config on all ranks, got ",
                                       difference.key, ": ", difference.first, " on rank 0 and ", difference.second,
                                       " on rank ", rank, "; start all processes with the same file and options");
    }
  }
}

}  // namespace

std::string BaseRunner::Internals::Setup::common_config_id() const {
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

std::string BaseRunner::Internals::Setup::program_id() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  formats::Hasher hasher;
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    hasher.update(std::as_bytes(std::span(block.data(), static_cast<std::size_t>(file.gcount()))));
  }
  return file.eof() ? formats::to_hex(hasher.digest()) : "";
}

// All ranks read the same list and throw the same error.
void BaseRunner::Internals::Setup::agree_on_run() {
  if (runner_.group().alone()) {
    return;
  }
  detail::Packer mine;
  mine.text(concat("danling ", version, " with LibTorch ", TORCH_VERSION));
  mine.text(runner_.code_id());
  mine.text(program_id());
  mine.text(to_yaml(to_tree(runner_.config())));
  mine.number(static_cast<std::int64_t>(runner_.seed_));
  mine.text(runner_.timestamp_);
  const auto all = detail::exchange(runner_.group(), mine.take());
  std::string version_of_0, code_of_0, program_of_0, config_of_0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    detail::Unpacker theirs(all[rank]);
    const std::string version_of_rank = theirs.text(), code = theirs.text(), program = theirs.text(),
                      config = theirs.text();
    const auto seed = static_cast<std::uint64_t>(theirs.number());
    if (rank == 0) {
      version_of_0 = version_of_rank, code_of_0 = code, program_of_0 = program, config_of_0 = config;
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
    check<DistributedError>(program == program_of_0 || program.empty() || program_of_0.empty(),
                            "runner.init_distributed",
                            "expected the same program on all ranks, got another file on rank ", rank,
                            " than on rank 0; start the same build everywhere");
    check_configs(config_of_0, config, rank);
  }
}

// Compares weights if gradients are summed; otherwise each rank may have other weights.
void BaseRunner::Internals::Setup::agree_on_state() {
  if (runner_.group().alone()) {
    return;
  }
  const std::filesystem::path& from = runner_.services().restore.path;
  const auto& train = runner_.state_.train;
  const bool compares = runner_.parallelism().has_same_weights();
  const auto exposed = compares ? runner_.gather_full_state(/*writes=*/false) : nullptr;
  detail::Packer mine;
  mine.text(concat(train.epoch, " ", train.global_step, " ", train.micro_step));
  mine.text(compares ? hash_of(runner_.model_state_dict()) : std::string());
  mine.text(concat(detail::place_in_run(runner_), from.empty() ? " without a checkpoint" : " of " + from.string()));
  const auto all = detail::exchange(runner_.group(), mine.take());
  std::string place_of_0, weights_of_0, words_of_0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    detail::Unpacker theirs(all[rank]);
    const std::string place = theirs.text(), weights = theirs.text(), words = theirs.text();
    if (rank == 0) {
      place_of_0 = place, weights_of_0 = weights, words_of_0 = words;
    }
    check<DistributedError>(place == place_of_0, "runner.auto_restore", "expected all ranks at the same step, got ",
                            words_of_0, " on rank 0 and ", words, " on rank ", rank,
                            "; set workspace_root to a directory that all processes share");
    check<DistributedError>(weights == weights_of_0, "runner.auto_restore",
                            "expected the same weights on all ranks, got others ", words_of_0, " on rank 0 than ",
                            words, " on rank ", rank,
                            "; resume, pretrained and workspace_root must lead to the same files on all of them");
  }
}

}  // namespace danling::inline v0
