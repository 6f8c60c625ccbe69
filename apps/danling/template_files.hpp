// The templates of `danling new`: the files of apps/new.
#pragma once

#include <string_view>
#include <vector>

namespace danling_command {

struct TemplateFile {
  std::string_view path;  ///< in the project
  std::string_view text;  ///< with @NAME@, @VERSION@ and @TORCH@
};

struct ProjectTemplate {
  std::string_view name;
  std::string_view about;
  std::vector<TemplateFile> files;
};

/// Sorted by name.
const std::vector<ProjectTemplate>& project_templates();

}  // namespace danling_command
