#include <danling/data/datasets/tar_shards.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

bool is_image(std::string_view name) {
  return name == "jpg" || name == "jpeg" || name == "png" || name.ends_with(".jpg") || name.ends_with(".jpeg") ||
         name.ends_with(".png");
}

at::Tensor tensor_of(const State& value, std::string_view what, const TarRecord::Member& member,
                     const TarRecord& record) {
  if (value.is_tensor()) {
    return value.tensor();
  }
  if (value.is_integer()) {
    return at::scalar_tensor(value.integer(), at::kLong);
  }
  if (value.is_double()) {
    return at::scalar_tensor(value.number(), at::kDouble);
  }
  if (value.is_bool()) {
    return at::scalar_tensor(value.boolean(), at::kBool);
  }
  fail<DataError>("data.tar_shards", "expected ", what, " that is an image, an array or a number, got ", value.kind(),
                  ": leave it to `extra`, or map records by a function of your own (member ", quote(member.name), ", ",
                  record.where(), ")");
}

/// Sets `value` at the dotted path `name`.
void set_nested(State& extra, std::string_view name, State value, const TarRecord& record) {
  State* place = &extra;
  for (std::string_view rest = name; !rest.empty();) {
    check<DataError>(place->is_null() || place->is_map(), "data.tar_shards",
                     "expected names of which none is the path of another, got [", join(record.names()), "] (",
                     record.where(), ")");
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    place = &(*place)[rest.substr(0, dot)];
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  check<DataError>(place->is_null(), "data.tar_shards", "expected names of which none is the path of another, got [",
                   join(record.names()), "] (", record.where(), ")");
  *place = std::move(value);
}

}  // namespace

TarShards::TarShards(TarRecords records, TarShardsOptions options)
    : records_(std::move(records)), options_(std::move(options)) {
  options_.image.validate();
}

TarSample TarShards::make(TarRecord record, const SampleInfo& info) const {
  TarSample sample;
  sample.uuid = record.key();
  const TarRecord::Member* const input = options_.input.empty() ? nullptr : &record.at(options_.input);
  const TarRecord::Member* const target = options_.target.empty() ? nullptr : &record.at(options_.target);
  if (input != nullptr && is_image(input->name)) {
    try {
      sample.input = read_image(record.bytes(*input), options_.image, info);
    } catch (const DataError& error) {
      throw DataError(concat(error.what(), " (member ", quote(input->name), ", ", record.where(), ")"));
    }
  } else if (input != nullptr) {
    sample.input = tensor_of(record.value(*input), "an input", *input, record);
  }
  if (target != nullptr) {
    sample.target = tensor_of(record.value(*target), "a target", *target, record);
  }
  if (options_.extra) {
    for (const std::string& name : *options_.extra) {
      set_nested(sample.extra, name, record.value(record.at(name)), record);
    }
    return sample;
  }
  for (const TarRecord::Member& member : record.members()) {
    if (&member != input && &member != target) {
      set_nested(sample.extra, member.name, record.value(member), record);
    }
  }
  return sample;
}

Batch TarShards::collate(std::vector<TarSample> samples) const {
  std::vector<Sample> plain;
  plain.reserve(samples.size());
  for (TarSample& sample : samples) {
    plain.push_back(std::move(sample));
  }
  return collate_images(std::move(plain));
}

TarShards tar_shards(const std::vector<std::string>& shards, TarShardsOptions options) {
  TarRecords records(shards, {.shuffle_shards = options.shuffle_shards,
                              .shuffle_buffer = options.shuffle_buffer,
                              .seed = options.seed,
                              .split = options.split});
  return {std::move(records), std::move(options)};
}

TarShards tar_shards(const std::string& shards, TarShardsOptions options) {
  return tar_shards(std::vector<std::string>{shards}, std::move(options));
}

}  // namespace danling::inline v0::data
