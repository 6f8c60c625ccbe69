// The options of a workspace in a test's directory.
#pragma once

#include <filesystem>
#include <string>

#include <danling/workspace/workspace.hpp>

#include <support/temp_dir.hpp>

namespace workspace_test {

namespace fs = std::filesystem;
using danling::Workspace;
using danling::WorkspaceOptions;
using danling_test::TempDir;

inline WorkspaceOptions options_in(const TempDir& dir, const std::string& code_id = "1234abcd") {
  WorkspaceOptions options;
  options.root = (dir / "experiments").string();
  options.code_id = code_id;
  options.config_id = "0123456789ab";
  options.name = "lin-exp";
  return options;
}

}  // namespace workspace_test
