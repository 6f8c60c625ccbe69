// danling ckpt: dispatches to its commands.
#include "ckpt.hpp"

#include "commands.hpp"

namespace danling_command {
namespace {

constexpr CommandEntry command_list[] = {
    {"ls", ckpt_ls, "list the values of a file, or the checkpoints of a directory"},
    {"show", ckpt_show, "show a file's tree with types, shapes, values and statistics"},
    {"verify", ckpt_verify, "verify every checksum of files or of a directory"},
    {"diff", ckpt_diff, "list the differences of two files"},
    {"convert", ckpt_convert, "convert to .pth or .safetensors, with other types, names or parts"},
};

}  // namespace

int ckpt(std::span<const std::string> words) {
  return dispatch(
      "danling ckpt",
      "Reads files of torch.save and danling (.pth, .pt, .bin), safetensors files, and directories of shards of\n"
      "danling and torch.distributed.checkpoint, detected by content; `latest` means `latest.pointer`.\n"
      "Runs no code from files and never loads a whole file into memory.\n",
      command_list, words);
}

}  // namespace danling_command
