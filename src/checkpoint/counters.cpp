#include <checkpoint/counters.hpp>

#include <charconv>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/formats/pth.hpp>

namespace danling::inline v0 {

namespace {

using formats::RecordTree;

const RecordTree* part(const RecordTree* tree, const char* key) {
  return tree != nullptr && tree->is_map() ? tree->find(key) : nullptr;
}

}  // namespace

std::optional<CheckpointCounters> counters_of(const RecordTree& tree) {
  const RecordTree* train = part(part(&tree, "state"), "train");
  const auto number = [&](const char* key) {
    const RecordTree* value = part(train, key);
    return value != nullptr && value->is_integer() ? std::optional(value->integer()) : std::nullopt;
  };
  const auto epoch = number("epoch");
  const auto step = number("global_step");
  if (!epoch || !step) {
    return std::nullopt;
  }
  return CheckpointCounters{*epoch, *step, number("micro_step").value_or(0)};
}

std::optional<CheckpointCounters> counters_in(const std::filesystem::path& path) {
  return counters_of(formats::PthReader(path).tree());
}

std::optional<double> score_in(const std::filesystem::path& path) {
  try {
    const formats::PthReader reader(path);
    if (const auto* note = reader.tree().find("checkpoint"); note != nullptr && note->is_map()) {
      if (const auto* score = note->find("score"); score != nullptr && score->is_double()) {
        return score->number();
      }
    }
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::optional<std::int64_t> result_of(const RecordTree& tree) {
  const RecordTree* rows = part(&tree, "results");
  if (rows == nullptr || !rows->is_list() || rows->items().empty()) {
    return std::nullopt;
  }
  const RecordTree* index = part(&rows->items().back(), "index");
  if (index == nullptr || !index->is_integer()) {
    return std::nullopt;
  }
  const RecordTree* epochs = part(part(&tree, "runner"), "epochs");
  if (epochs != nullptr && epochs->is_null()) {
    // By steps: a result belongs to the state with its number of updates, at any position of a pass.
    const RecordTree* step = part(part(part(&tree, "state"), "train"), "global_step");
    return step != nullptr && step->is_integer() && step->integer() == index->integer()
               ? std::optional(index->integer())
               : std::nullopt;
  }
  const RecordTree* loop = part(&tree, "loop");
  const RecordTree* split = part(loop, "split");
  const RecordTree* round = part(loop, "round");
  const bool inside = split == nullptr || !split->is_string() || !split->string().empty() || round == nullptr ||
                      !round->is_map() || !round->map().empty();
  return inside ? std::nullopt : std::optional(index->integer());
}

std::optional<std::int64_t> result_in(const std::filesystem::path& path) {
  try {
    return result_of(formats::PthReader(path).tree());
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

std::optional<HistoryName> parse_history_name(const std::string& stem) {
  const bool by_steps = stem.starts_with("ckpt-s");
  if (!by_steps && !stem.starts_with("ckpt-e")) {
    return std::nullopt;
  }
  HistoryName out{by_steps, 0};
  const char* end = stem.data() + stem.size();
  const auto [last, error] = std::from_chars(stem.data() + 6, end, out.progress);
  return error == std::errc() && last == end && stem[6] != '-' ? std::optional(out) : std::nullopt;
}

}  // namespace danling::inline v0
