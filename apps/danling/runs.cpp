// danling runs: dispatches to its commands.
#include "runs.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "commands.hpp"

namespace danling_command {
namespace {

constexpr CommandEntry command_list[] = {
    {"ls", runs_ls, "list runs: status, progress, score, time, size"},
    {"show", runs_show, "show the details of one run"},
    {"compare", runs_compare, "compare two runs down to the first differing key, step and tensor"},
    {"best", runs_best, "list the best runs by their score"},
    {"rm", runs_rm, "remove runs, or old checkpoints and attempts of runs"},
};

}  // namespace

int runs(std::span<const std::string> words) {
  return dispatch(
      "danling runs",
      "A RUN is a path, or the beginning of the id of a run or config, or of folder/id, below --root (default:\n"
      "experiments).\n",
      command_list, words);
}

std::optional<bool> usual_direction(std::string_view path) {
  if (path.ends_with(".loss") || path.find(".losses.") != path.npos) {
    return false;
  }
  static constexpr std::array<std::string_view, 14> higher = {"acc",  "accuracy",  "auroc",  "auprc", "f1",
                                                              "mcc",  "precision", "recall", "r2",    "iou",
                                                              "bleu", "map",       "kappa",  "score"};
  const std::string_view metric = path.substr(path.rfind('.') + 1);
  const auto names = [&](std::string_view name) {  // acc5 and f1_macro, not mape
    return metric.starts_with(name) &&
           (metric.size() == name.size() || std::isalpha(static_cast<unsigned char>(metric[name.size()])) == 0);
  };
  const bool known = metric.find("loss") == metric.npos && metric.find("error") == metric.npos &&
                     std::any_of(higher.begin(), higher.end(), names);
  return known ? std::optional(true) : std::nullopt;
}

}  // namespace danling_command
