// danling ckpt verify: verifies every checksum.
#include <cstdio>

#include <danling/core/error.hpp>

#include "arguments.hpp"
#include "ckpt.hpp"
#include "ckpt_json.hpp"

namespace danling_command {
namespace {

const std::initializer_list<Option> option_list = {{"--json", "", "print JSON for programs"},
                                                   {"--help", "", "print this text"}};

struct Verdict {
  std::string checked;  // display text of the checks
  std::vector<Damage> damage;
};

Verdict verify(const std::filesystem::path& path) {
  if (!is_sharded_path(path)) {
    const danling::formats::InputFile opened(path);  // an unreadable file is an error, not damage
  }
  try {
    const TensorFile file(path);
    const std::string checks = file.checks();
    Verdict out;
    out.checked =
        danling::detail::concat(checks.empty() ? (file.is_safetensors() ? "its header" : "its structure") : checks,
                                checks.empty() ? "" : " of ",
                                checks.empty() ? ""
                                               : count_text(file.num_records(), file.is_sharded()       ? "file"
                                                                                : file.is_safetensors() ? "tensor"
                                                                                                        : "record"),
                                file.has_hashes() ? ""
                                : checks.empty()  ? "; the file has no checksums"
                                                  : "; the file has no hashes of danling");
    out.damage = file.verify();
    return out;
  } catch (const danling::CheckpointError& error) {
    return {"", {{"", error.what()}}};
  }
}

}  // namespace

int ckpt_verify(std::span<const std::string> words) {
  const Arguments arguments("danling ckpt verify", words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling ckpt verify FILE|DIRECTORY...\n\n"
        "Reads every byte and verifies all checksums: hashes and CRCs in files of danling, CRCs in files of "
        "torch.save.\n"
        "Other safetensors files, and archives written without CRCs (torch.serialization.set_crc32_options), have no\n"
        "checksums; of these it checks only the structure. In a directory of shards it verifies every file, by\n"
        "danling's hashes or the CRCs of Python's archives.\n"
        "\n%s\n"
        "Example: danling ckpt verify runs/mnist/checkpoints\n"
        "Exit code: 0 if all files are intact, 1 if one is damaged, 2 after any other error, such as a missing file.\n",
        describe(option_list).c_str());
    return 0;
  }
  danling::detail::check<danling::ConfigError>(!arguments.positional().empty(), "danling ckpt verify",
                                               "expected files or directories, got none");
  bool sound = true;
  Json all = Json::array();
  for (const auto& path : checkpoints_of(arguments.positional())) {
    const Verdict verdict = verify(path);
    sound = sound && verdict.damage.empty();
    if (arguments.has("--json")) {
      Json damage = Json::array();
      for (const auto& [record, reason] : verdict.damage) {
        damage.push_back({{"record", record}, {"reason", reason}});
      }
      all.push_back({{"file", path.string()},
                     {"sound", verdict.damage.empty()},
                     {"checked", verdict.checked},
                     {"damage", std::move(damage)}});
    } else if (verdict.damage.empty()) {
      std::printf("%s: sound, checked %s\n", path.c_str(), verdict.checked.c_str());
    } else {
      std::printf("%s: %s\n", path.c_str(), verdict.checked.empty() ? "UNREADABLE" : "DAMAGED");
      for (const auto& damage : verdict.damage) {
        std::printf("  %s\n", damage.reason.c_str());
      }
    }
  }
  if (arguments.has("--json")) {
    print_json(all);
  }
  return sound ? 0 : 1;
}

}  // namespace danling_command
