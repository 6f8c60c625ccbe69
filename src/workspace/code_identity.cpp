#include <danling/workspace/code_identity.hpp>

#include <utility>
#include <vector>

#include <danling/core/format.hpp>

#include <workspace/command.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::size_t most_diff = std::size_t{64} << 20;

class Git {
 public:
  Git(std::string directory, std::chrono::milliseconds limit) : directory_(std::move(directory)), limit_(limit) {}

  detail::CommandOutput operator()(std::vector<std::string> words, const std::string& input = "") const {
    words.insert(words.begin(), {"git", "-C", directory_});
    return detail::run_command(words, input, limit_, most_diff);
  }

  /// Describes the failure of a command in one sentence.
  std::string problem(const detail::CommandOutput& answer) const {
    if (answer.missing) {
      return "git is not installed";
    }
    if (answer.timed_out) {
      return concat("git did not end within ", static_cast<std::int64_t>(limit_.count()), " ms");
    }
    const std::string line = first_line(answer.error);
    return line.empty() ? "git failed" : concat("git failed: ", quote(line));
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

 private:
  std::string directory_;
  std::chrono::milliseconds limit_;
};

}  // namespace

CodeIdentity read_code_identity(const std::filesystem::path& directory, std::chrono::milliseconds limit) {
  CodeIdentity code;
  const Git git(directory.string(), limit);
  const auto head = git({"rev-parse", "--verify", "--quiet", "HEAD^{commit}"});
  code.commit = Git::first_line(head.out);
  if (!head.ok || code.commit.size() < 8) {
    code.commit.clear();
    // Repeats the command without --quiet to get the reason: no repository, or no commit.
    const bool silent = head.error.empty() && !head.missing && !head.timed_out;
    code.problem = git.problem(silent ? git({"rev-parse", "--verify", "HEAD"}) : head);
    return code;
  }
  code.id = code.commit.substr(0, 8);

  // Overrides the user's git settings, since the output is hashed.
  auto diff = git({"-c",
                   "core.quotePath=true",
                   "-c",
                   "diff.relative=false",
                   "-c",
                   "diff.suppressBlankEmpty=false",
                   "-c",
                   "diff.indentHeuristic=true",
                   "diff",
                   "HEAD",
                   "-O/dev/null",
                   "--binary",
                   "--full-index",
                   "--src-prefix=a/",
                   "--dst-prefix=b/",
                   "--no-ext-diff",
                   "--no-textconv",
                   "--no-color",
                   "--no-renames",
                   "--submodule=short",
                   "--ignore-submodules=untracked",
                   "--diff-algorithm=default",
                   "--unified=3",
                   "--inter-hunk-context=0"});
  if (diff.too_long) {
    diff.out.resize(most_diff);
    code.problem = "the changes are larger than 64 MiB and were not stored";
  } else if (!diff.ok) {
    code.problem = git.problem(diff);
    code.id += "-dunknown";
    code.dirty = true;
    return code;
  }
  code.dirty = !diff.out.empty();
  if (code.dirty) {
    const auto hash = git({"hash-object", "--stdin"}, diff.out);
    if (hash.ok && hash.out.size() >= 10) {
      code.id += "-d" + hash.out.substr(0, 10);
    } else {
      code.id += "-dunknown";
      code.problem = git.problem(hash);
    }
    if (!diff.too_long) {
      code.diff = std::move(diff.out);
    }
  }
  return code;
}

std::string make_run_id(const std::string& code_id, const std::string& config_id) {
  return code_id.empty() ? config_id : concat(code_id, "-", config_id);
}

}  // namespace danling::inline v0
