// Computes DeepSpeed's batch sizes.
#include <runner/deepspeed_fold.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr auto batch_where = "deepspeed.config";

std::optional<std::int64_t> positive_count(DeepSpeedSection& section, std::string_view key) {
  const auto value = section.integer(key);
  check<ConfigError>(!value || *value > 0, batch_where, "expected a number above 0 for ", quote(section.path_of(key)),
                     ", got ", value.value_or(0));
  return value;
}

void check_product(std::int64_t total, std::int64_t micro, std::int64_t steps, std::string_view steps_name,
                   std::int64_t world_size) {
  check<ConfigError>(total == micro * steps * world_size, batch_where,
                     "expected 'deepspeed.train_batch_size' to be train_micro_batch_size_per_gpu x ", steps_name,
                     " x processes = ", micro, " x ", steps, " x ", world_size, " = ", micro * steps * world_size,
                     ", got ", total);
}

/// Returns total / parts. DeepSpeed rounds down, then refuses the remainder.
std::int64_t exact_share(std::int64_t total, std::int64_t parts, std::string_view arithmetic) {
  check<ConfigError>(total % parts == 0, batch_where, "expected 'deepspeed.train_batch_size' to be a multiple of ",
                     arithmetic, " = ", parts, ", got ", total);
  return total / parts;
}

}  // namespace

DeepSpeedBatch resolve_deepspeed_batch(DeepSpeedSection& section, const DeepSpeedBatch& own, std::int64_t world_size,
                                       std::vector<std::string>& warnings) {
  const auto total = positive_count(section, "train_batch_size");
  const auto micro = positive_count(section, "train_micro_batch_size_per_gpu");
  const auto steps = positive_count(section, "gradient_accumulation_steps");
  // Checks that the file is consistent before it replaces any setting. After a first reading, the file has one step,
  // whatever the config accumulates.
  if (total && micro && steps && *steps != 1) {
    check_product(*total, *micro, *steps, "gradient_accumulation_steps", world_size);
  }
  if (steps && *steps != 1) {
    warnings.push_back(
        "DeepSpeedRunner manages accumulation via config.accum_steps; overriding "
        "deepspeed.gradient_accumulation_steps to 1");  // DanLing's text
  }
  check<ConfigError>(!micro || !own.micro || *micro == *own.micro, batch_where,
                     "expected 'dataloader.batch_size' to be ", micro.value_or(0),
                     " as 'deepspeed.train_micro_batch_size_per_gpu' sets it, or unset; got ", own.micro.value_or(0));
  DeepSpeedBatch out{micro ? micro : own.micro, own.accumulation};
  if (!total) {
    return out;
  }
  if (out.micro && own.accumulation == 1 && !(steps && *steps == 1)) {
    out.accumulation = exact_share(*total, *out.micro * world_size,
                                   concat("samples of a process x processes = ", *out.micro, " x ", world_size));
  } else if (!out.micro) {
    out.micro = exact_share(*total, own.accumulation * world_size,
                            concat("accum_steps x processes = ", own.accumulation, " x ", world_size));
  }
  check_product(*total, *out.micro, out.accumulation, "accum_steps", world_size);
  return out;
}

}  // namespace danling::inline v0::detail
