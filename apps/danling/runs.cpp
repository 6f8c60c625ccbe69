// danling runs: dispatches to its commands.
#include "runs.hpp"

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

}  // namespace danling_command
