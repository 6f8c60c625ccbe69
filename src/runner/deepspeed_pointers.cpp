// Pointers to tagged checkpoints.
#include <runner/deepspeed_pointers.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

constexpr auto pointer_where = "deepspeed.checkpoint";
constexpr std::string_view pointer_suffix = ".pointer";

DeepSpeedTag pointed_tag(const fs::path& pointer) {
  DeepSpeedTag out{pointer.parent_path(), read_deepspeed_pointer(pointer)};
  std::error_code missing;
  check<CheckpointError>(fs::is_directory(out.path(), missing), pointer_where, "expected the checkpoint ",
                         quote(out.path().string()), ", which ", quote(pointer.string()), " names, got none");
  return out;
}

}  // namespace

fs::path deepspeed_pointer(const fs::path& directory, const std::string& name) {
  return directory / (name + std::string(pointer_suffix));
}

void write_deepspeed_pointer(const fs::path& directory, const std::string& name, const std::string& tag) {
  formats::replace_file(deepspeed_pointer(directory, name), tag);
}

std::string read_deepspeed_pointer(const fs::path& pointer) {
  std::ifstream file(pointer, std::ios::binary);
  std::string text(4097, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  check<CheckpointError>(file.is_open() && !file.bad(), pointer_where, "expected a pointer that can be read, got ",
                         quote(pointer.string()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), is_space).base(), text.end());
  check<CheckpointError>(!text.empty(), pointer_where, "expected the name of a checkpoint in the pointer ",
                         quote(pointer.string()), ", got an empty file");
  const bool is_name = text.size() <= 255 && text != "." && text != ".." &&
                       std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == '/'; });
  check<CheckpointError>(is_name, pointer_where, "expected the name of a directory in the pointer ",
                         quote(pointer.string()), ", got other text");
  return text;
}

std::optional<std::string> find_deepspeed_tag(const fs::path& directory, const std::string& name) {
  std::error_code missing;
  const auto pointer = deepspeed_pointer(directory, name);
  if (!fs::is_regular_file(pointer, missing)) return std::nullopt;
  try {
    return pointed_tag(pointer).tag;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

std::vector<std::string> pointed_deepspeed_tags(const fs::path& directory) {
  std::vector<std::string> out;
  std::error_code missing;
  for (fs::directory_iterator entry(directory, missing), end; !missing && entry != end; entry.increment(missing)) {
    if (entry->path().extension() == pointer_suffix) {
      if (auto tag = find_deepspeed_tag(directory, entry->path().stem().string())) out.push_back(*std::move(tag));
    }
  }
  return out;
}

bool is_state_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".pth" || extension == ".pt" || extension == ".bin" || extension == ".ckpt" ||
         extension == ".safetensors";
}

fs::path tagged_state_file(const fs::path& path) {
  std::error_code missing;
  const bool is_pointer = path.extension() == pointer_suffix || path.filename() == "latest";
  if (fs::is_regular_file(path, missing) && !is_pointer) {
    return path;
  }
  if (!is_pointer && !fs::exists(path, missing) && !fs::exists(path.string() + std::string(pointer_suffix), missing)) {
    return path;
  }
  const fs::path file = resolve_deepspeed_checkpoint(path).path() / deepspeed_state_file;
  return is_pointer || fs::exists(file, missing) ? file : path;
}

DeepSpeedTag resolve_deepspeed_checkpoint(const fs::path& checkpoint) {
  std::error_code missing;
  const fs::path path = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  if (fs::is_regular_file(path, missing)) {
    return pointed_tag(path);
  }
  if (fs::is_directory(path, missing)) {
    const auto pointer = deepspeed_pointer(path, "latest");
    const auto latest = path / "latest";  // DeepSpeed's own name
    if (fs::is_regular_file(pointer, missing)) return pointed_tag(pointer);
    if (fs::is_regular_file(latest, missing)) return pointed_tag(latest);
    if (fs::is_directory(latest, missing)) return {path, "latest"};
    return {path.parent_path(), path.filename().string()};
  }
  const auto alias = deepspeed_pointer(path.parent_path(), path.filename().string());
  if (fs::is_regular_file(alias, missing)) {
    return pointed_tag(alias);
  }
  fail<CheckpointError>(pointer_where, "expected a checkpoint, a pointer or a directory of checkpoints, got ",
                        quote(checkpoint.string()), ", which does not exist");
}

}  // namespace danling::inline v0::detail
