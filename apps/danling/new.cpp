// danling new: writes the files of a project that trains a model.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <torch/version.h>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/version.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "template_files.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::check;
using danling::detail::concat;
using danling::detail::quote;
using danling::detail::shell_word;

namespace fs = std::filesystem;

constexpr std::string_view command_name = "danling new";
constexpr std::size_t longest_name = 64;

const std::initializer_list<Option> option_list = {{"--template", "NAME", "the kind of model; by default mlp"},
                                                   {"--output", "DIR", "the directory; by default the project's name"},
                                                   {"--help", "", "print this"}};

void print_help() {
  std::vector<Option> templates;
  for (const auto& entry : project_templates()) {
    templates.push_back({.name = entry.name, .help = entry.about});
  }
  std::printf(
      "Usage: danling new NAME [options]\n\nWrites a project that builds, trains and has tests: CMakeLists.txt, "
      "README.md, config, data, model, runner, program, tests, a CI file.\n\n%s\nTemplates:\n%s",
      describe(option_list).c_str(), describe(templates).c_str());
}

/// The name is that of CMake targets and of the program.
void check_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  check<ConfigError>(
      !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), fits) && name.size() <= longest_name,
      command_name, "expected a name of at most ", longest_name,
      " letters, digits, '_' and '-' that begins with a letter, got ", quote(name));
  static const std::set<std::string> taken = {"all",     "clean", "danling", "depend",        "edit_cache", "help",
                                              "install", "list",  "package", "rebuild_cache", "test",       "torch"};
  check<ConfigError>(!taken.contains(name), command_name, "expected another name than ", quote(name),
                     ", which is a target of CMake or a library");
}

const ProjectTemplate& find_template(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : project_templates()) {
    if (entry.name == name) {
      return entry;
    }
    names.emplace_back(entry.name);
  }
  danling::detail::fail<ConfigError>(command_name, "expected one of the templates ", danling::detail::join(names),
                                     ", got ", quote(name), danling::detail::did_you_mean(name, names));
}

std::string replace_all(std::string text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

/// Writes all files to a temporary directory, which is then renamed to the project's, or moved into an empty one.
void write_project(const ProjectTemplate& entry, const std::string& name, const fs::path& directory) {
  const fs::path temporary = concat(directory.string(), ".new-", getpid());
  const std::string version = concat(danling::version_major, ".", danling::version_minor);
  const std::string torch = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR);
  try {
    for (const auto& [path, text] : entry.files) {
      const fs::path file = temporary / path;
      fs::create_directories(file.parent_path());
      std::ofstream out(file, std::ios::binary);
      out << replace_all(replace_all(replace_all(std::string(text), "@NAME@", name), "@VERSION@", version), "@TORCH@",
                         torch);
      check<ConfigError>(static_cast<bool>(out.flush()), command_name, "expected to write ", quote(file.string()),
                         ", got an error");
    }
    if (!fs::exists(directory)) {
      fs::rename(temporary, directory);
    } else {  // keep an empty directory, in which the user's shell may be
      for (const auto& made : fs::directory_iterator(temporary)) {
        fs::rename(made.path(), directory / made.path().filename());
      }
      fs::remove(temporary);
    }
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    const auto* problem = dynamic_cast<const fs::filesystem_error*>(&error);
    check<ConfigError>(problem == nullptr, command_name, "expected to write ", quote(directory.string()),
                       ", got: ", problem == nullptr ? std::string() : problem->code().message());
    throw;
  }
}

/// The directory of the danlingConfig.cmake that belongs to this command, installed or built; empty where CMake finds
/// it without help, or if there is none.
std::string package_directory() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder / DANLING_LIBRARY_FOLDER / "cmake" / "danling", folder.parent_path()}) {
    if (fs::exists(place / "danlingConfig.cmake", error)) {
      const std::string found = fs::weakly_canonical(place, error).string();
      const bool standard = found.starts_with("/usr/lib/") || found.starts_with("/usr/local/lib/");
      return standard ? "" : found;
    }
  }
  return "";
}

}  // namespace

int new_project(std::span<const std::string> words) {
  const Arguments arguments(command_name, words, option_list);
  if (arguments.has("--help")) {
    print_help();
    return 0;
  }
  arguments.expect(1, "a name");
  const std::string name = arguments.positional()[0];
  check_name(name);
  const ProjectTemplate& entry = find_template(arguments.value("--template").value_or("mlp"));
  fs::path directory = fs::path(arguments.value("--output").value_or(name)).lexically_normal();
  if (directory == ".") {
    directory = fs::current_path();
  } else if (!directory.has_filename()) {  // ends with a slash
    directory = directory.parent_path();
  }
  std::error_code error;
  check<ConfigError>(!fs::exists(fs::symlink_status(directory, error)) ||
                         (fs::is_directory(fs::symlink_status(directory, error)) && fs::is_empty(directory, error)),
                     command_name, "expected a directory that is empty or does not exist, got ",
                     quote(directory.string()), "; nothing was written");
  write_project(entry, name, directory);
  const std::string package = package_directory();
  std::printf("%s: %zu files of the template %s\n\n", directory.string().c_str(), entry.files.size(),
              std::string(entry.name).c_str());
  std::printf("cd %s\ncmake -B build%s\ncmake --build build\nctest --test-dir build --output-on-failure\n",
              shell_word(directory.string()).c_str(),
              package.empty() ? "" : concat(" -Ddanling_DIR=", shell_word(package)).c_str());
  std::printf("./build/%s --config config.yaml\n", name.c_str());
  return 0;
}

}  // namespace danling_command
