// danling runs rm: removes runs, or their old checkpoints and attempts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include <danling/core/error.hpp>

#include "ckpt.hpp"
#include "runs.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
namespace fs = std::filesystem;

constexpr auto where = "danling runs rm";

const std::initializer_list<Option> option_list = {
    {"--root", "DIR", "directory of runs (default: experiments)"},
    {"--keep", "best|latest",
     "keep this checkpoint, and logs, metrics, results and metadata; remove other checkpoints "
     "and earlier attempts"},
    {"--dry-run", "", "print what would be removed"},
    {"--yes", "", "do not ask for confirmation"},
    {"--help", "", "print this text"}};

struct Removal {
  fs::path dir;
  std::vector<fs::path> parts;  ///< paths to remove; without --keep the directory of the run
  std::uint64_t bytes = 0;
};

// Returns the real directory of a run; refuses any link.
fs::path real_run(const std::string& word, const fs::path& root) {
  const auto dir = find_run(word, root).lexically_normal();
  const auto bare = dir.has_filename() ? dir : dir.parent_path();
  std::error_code error;
  danling::detail::check<ConfigError>(!fs::is_symlink(bare, error), where, "expected a run's directory, got ",
                                      quote(bare.string()), ", a link to ",
                                      quote(fs::read_symlink(bare, error).string()), "; name the directory itself");
  if (!fs::is_directory(word, error)) {  // the run was found by its id
    const auto real_root = fs::canonical(root, error);
    const auto real = fs::canonical(bare, error);
    const auto below = real.lexically_relative(real_root);
    danling::detail::check<ConfigError>(
        !below.empty() && *below.begin() != "..", where, "expected a run below ", quote(root.string()), ", got ",
        quote(bare.string()), ", which a link resolves to ", quote(real.string()), "; name that directory itself");
  }
  return fs::canonical(bare, error);
}

Removal plan_removal(const fs::path& dir, const std::optional<std::string>& keep) {
  const danling::RunDirectory run(dir);
  if (!keep) {
    return {dir, {dir}, run.bytes()};
  }
  Removal out{dir, {}, 0};
  const std::string kept = *keep + ".pth";
  const auto checkpoints = run.checkpoints();
  const auto found = std::find_if(checkpoints.begin(), checkpoints.end(),
                                  [&](const auto& file) { return file.path.filename() == kept; });
  danling::detail::check<ConfigError>(found != checkpoints.end(), where, "expected ", kept, " to keep in ",
                                      quote(run.checkpoint_dir().string()), ", got none; nothing is removed");
  std::vector<std::uint64_t> counted = {found->inode};
  for (const auto& file : checkpoints) {
    if (file.path.filename() == kept) {
      continue;
    }
    out.parts.push_back(file.path);
    if (std::find(counted.begin(), counted.end(), file.inode) == counted.end()) {
      counted.push_back(file.inode);
      out.bytes += file.bytes;
    }
  }
  std::error_code error;
  if (const auto attempts = dir / "attempts"; fs::is_directory(fs::symlink_status(attempts, error))) {
    out.parts.push_back(attempts);
    out.bytes += danling::RunDirectory(attempts).bytes();
  }
  return out;
}

// Removes the planned paths. Renames the directory of a run first, so that it is removed completely or not at all.
void remove(const Removal& removal) {
  const danling::RunLock hold(removal.dir);
  danling::detail::check<ConfigError>(danling::is_run_directory(removal.dir), where, "expected a run's directory, got ",
                                      quote(removal.dir.string()),
                                      ", which changed in the meantime; nothing of it is removed");
  for (const auto& part : removal.parts) {
    std::error_code error;
    fs::path target = part;
    if (part == removal.dir) {
      target = part.parent_path() / concat(".removing-", part.filename().string(), "-", getpid());
      fs::rename(part, target, error);
      danling::detail::check<danling::Error>(!error, where, "expected to remove ", quote(part.string()), ", got ",
                                             quote(error.message()), "; nothing of it is removed");
    }
    fs::remove_all(target, error);  // removes links, not their targets
    danling::detail::check<danling::Error>(!error, where, "expected to remove all of ", quote(part.string()), ", got ",
                                           quote(error.message()), "; the rest is in ", quote(target.string()));
  }
}

bool ask(const std::string& question) {
  danling::detail::check<ConfigError>(isatty(0) == 1, where,
                                      "expected --yes, since standard input is not a terminal; --dry-run prints "
                                      "what would be removed");
  std::printf("%s [y/N] ", question.c_str());
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

int runs_rm(std::span<const std::string> words) {
  const Arguments arguments(where, words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling runs rm RUN... [options]\n\n"
        "Removes runs. Refuses a run in which a process runs, and a directory that is not a run. Never follows links.\n"
        "\n%s",
        describe(option_list).c_str());
    return 0;
  }
  const auto keep = arguments.value("--keep");
  danling::detail::check<ConfigError>(!keep || *keep == "best" || *keep == "latest", where,
                                      "expected --keep best or latest, got ", quote(keep.value_or("")));
  danling::detail::check<ConfigError>(!arguments.positional().empty(), where, "expected runs to remove, got none");
  const auto root = arguments.value("--root").value_or(std::string(runs_root));
  // Finds and checks all runs before it removes the first.
  std::vector<Removal> removals;
  std::uint64_t bytes = 0;
  for (const auto& word : arguments.positional()) {
    const auto dir = real_run(word, root);
    if (std::any_of(removals.begin(), removals.end(), [&](const Removal& other) { return other.dir == dir; })) {
      continue;
    }
    const danling::RunLock free(dir);
    removals.push_back(plan_removal(dir, keep));
    bytes += removals.back().bytes;
  }
  for (const auto& removal : removals) {
    std::printf("%s  %s\n", removal.dir.string().c_str(), danling::format_bytes(removal.bytes).c_str());
    for (const auto& part : removal.parts) {
      if (part != removal.dir) {
        std::printf("  %s\n", part.lexically_relative(removal.dir).string().c_str());
      }
    }
  }
  const std::string what = concat(count_text(removals.size(), "run"), ", ", danling::format_bytes(bytes));
  if (arguments.has("--dry-run")) {
    std::printf("would remove %s%s\n", keep ? "parts of " : "", what.c_str());
    return 0;
  }
  if (!arguments.has("--yes") && !ask(concat("Remove ", keep ? "these parts of " : "", what, "?"))) {
    std::puts("nothing is removed");
    return 1;
  }
  int code = 0;
  for (const auto& removal : removals) {
    try {
      remove(removal);
    } catch (const danling::Error& error) {  // continues with the other runs
      std::fflush(stdout);
      std::fprintf(stderr, "%s\n", error.what());
      code = 2;
    }
  }
  if (code == 0) {
    std::printf("removed %s%s\n", keep ? "parts of " : "", what.c_str());
  }
  return code;
}

}  // namespace danling_command
