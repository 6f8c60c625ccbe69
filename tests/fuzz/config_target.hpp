// Shared by the config targets: reads nodes into a config with every kind of field, and writes them again.
#pragma once

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>

#include <config/sample.hpp>

#include "config/assign.hpp"
#include "config/node.hpp"
#include "target.hpp"

namespace danling_fuzz {

/// Assigns `root` to a fresh config, writes that as YAML and reads it back.
inline void assign_and_write(const danling::detail::Node& root, const danling::detail::Origin& origin) {
  danling_test::SampleConfig first;
  danling::detail::Assignment(first, origin).assign_all(root);
  const std::string written = danling::to_yaml(danling::to_tree(first));
  danling_test::SampleConfig second;
  try {
    danling::load_text(second, written, "written");
  } catch (const danling::Error& error) {
    require(false, danling::detail::concat("that what was written can be read, got ", error.what(), " for\n", written));
  }
  const std::string again = danling::to_yaml(danling::to_tree(second));
  require(written == again,
          danling::detail::concat("the same config after writing and reading, got\n", written, "and\n", again));
}

}  // namespace danling_fuzz
