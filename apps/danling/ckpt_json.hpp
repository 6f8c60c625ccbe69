// JSON output of `danling ckpt` with --json.
#pragma once

#include <nlohmann/json.hpp>

#include "tensor_file.hpp"

namespace danling_command {

using Json = nlohmann::ordered_json;

/// Returns the number, or for non-finite numbers, which JSON lacks, a text (`nan`, `inf`).
Json json_number(double value);
/// Converts a value that is not a tensor. Bytes become their count: `{"bytes": 12}`.
Json json_value(const RecordTree& value);
/// Returns `key`, `dtype`, `shape` and `bytes` of a tensor; `key`, `kind` and `value` of other leaves.
Json json_leaf(const Leaf& leaf);
/// Returns `file`, `format` and `bytes`.
Json json_file(const TensorFile& file);
void print_json(const Json& json);

}  // namespace danling_command
