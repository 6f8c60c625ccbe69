// danling runs: finds the command of its name.
#include "runs.hpp"

#include "commands.hpp"

namespace danling_command {
namespace {

constexpr CommandEntry kCommands[] = {
    {"ls", runs_ls, "list runs: status, progress, score, time, size"},
    {"show", runs_show, "show all that is known of one run"},
    {"compare", runs_compare, "compare two runs down to the first differing key, step and tensor"},
    {"best", runs_best, "list the best runs by their score"},
    {"rm", runs_rm, "remove runs, or all of a run but a checkpoint"},
};

}  // namespace

int runs(std::span<const std::string> words) {
  return dispatch("danling runs",
                  "A RUN is a path, or the beginning of a run's id, of its config's id or of folder/id, below --root\n"
                  "(default: experiments).\n",
                  kCommands, words);
}

}  // namespace danling_command
