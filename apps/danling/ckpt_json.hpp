// JSON output of `danling ckpt` with --json.
#pragma once

#include <nlohmann/json.hpp>

#include "tensor_file.hpp"

namespace danling_command {

using Json = nlohmann::ordered_json;

/// The number, or its name as text where JSON has none (`nan`, `inf`).
Json json_number(double value);
/// A value that is not a tensor. Bytes become their number: `{"bytes": 12}`.
Json json_value(const RecordTree& value);
/// `key`, `dtype`, `shape`, `bytes` of a tensor; `key`, `kind`, `value` of anything else.
Json json_leaf(const Leaf& leaf);
/// `file`, `format`, `bytes`.
Json json_file(const TensorFile& file);
void print_json(const Json& json);

}  // namespace danling_command
