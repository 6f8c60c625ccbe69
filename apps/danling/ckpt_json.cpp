#include "ckpt_json.hpp"

#include <cmath>
#include <cstdio>

#include <danling/core/format.hpp>

#include "ckpt.hpp"

namespace danling_command {

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(danling::to_text(value)); }

Json json_value(const RecordTree& value) {
  if (value.is_bool()) {
    return value.boolean();
  }
  if (value.is_integer()) {
    return value.integer();
  }
  if (value.is_double()) {
    return json_number(value.number());
  }
  if (value.is_string()) {
    return value.string();
  }
  if (value.is_bytes()) {
    return {{"bytes", value.bytes().data.size()}};
  }
  if (value.is_list() || value.is_tuple()) {
    Json out = Json::array();
    for (const auto& item : value.items()) {
      out.push_back(json_value(item));
    }
    return out;
  }
  return value.is_map() ? Json::object() : Json();
}

Json json_leaf(const Leaf& leaf) {
  Json out = {{"key", leaf.path}};
  if (leaf.value->is_tensor()) {
    const auto& record = leaf.value->tensor();
    out["dtype"] = danling::formats::dtype_name(record.dtype);
    out["shape"] = record.sizes;
    out["bytes"] = num_elements(record) * danling::formats::dtype_size(record.dtype);
  } else {
    out["kind"] = kind_text(*leaf.value);
    out["value"] = json_value(*leaf.value);
  }
  return out;
}

Json json_file(const TensorFile& file) {
  return {{"file", file.path().string()},
          {"format", file.is_sharded()       ? "sharded"
                     : file.is_safetensors() ? "safetensors"
                                             : "pth"},
          {"bytes", file.size()}};
}

void print_json(const Json& json) { std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str()); }

}  // namespace danling_command
