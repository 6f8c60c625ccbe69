#include <danling/runner/results.hpp>

#include <algorithm>
#include <cmath>

namespace danling::inline v0 {
namespace {

// DanLing's tolerance, relative for small scores.
bool is_same(double score, double best) {
  return score == best || std::abs(score - best) < 1e-7 * std::min(1.0, std::max(std::abs(score), std::abs(best)));
}

}  // namespace

namespace {

State nested_lists(const Result::Array& array, std::size_t dim, std::size_t& at) {
  if (dim == array.shape.size()) {
    return array.values[at++];
  }
  State::List list;
  for (std::int64_t i = 0; i < array.shape[dim]; ++i) {
    list.push_back(nested_lists(array, dim + 1, at));
  }
  return list;
}

// Reads lists of equal length in each dimension, as nested_lists makes them.
void read_nested(const State& lists, std::size_t dim, Result::Array& out) {
  if (!lists.is_list()) {
    out.values.push_back(lists.number());
    return;
  }
  if (dim == out.shape.size()) {
    out.shape.push_back(static_cast<std::int64_t>(lists.list().size()));
  }
  for (const State& item : lists.list()) {
    read_nested(item, dim + 1, out);
  }
}

}  // namespace

State to_state(const Result& result) {
  State::Map map;
  for (const auto& [name, value] : result) {
    if (const auto* number = std::get_if<double>(&value)) {
      map.set(name, *number);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      map.set(name, State::List(list->begin(), list->end()));
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      std::size_t at = 0;
      map.set(name, nested_lists(*array, 0, at));
    } else {
      map.set(name, to_state(std::get<Result>(value)));
    }
  }
  return map;
}

Result result_from_state(const State& state) {
  Result result;
  for (const auto& entry : state.map()) {
    const std::string& name = entry.key.string();
    if (entry.value.is_map()) {
      result.set(name, result_from_state(entry.value));
    } else if (entry.value.is_list() && entry.value.list().size() > 0 && entry.value.list()[0].is_list()) {
      Result::Array array;
      read_nested(entry.value, 0, array);
      result.set(name, std::move(array));
    } else if (entry.value.is_list()) {
      std::vector<double> list;
      for (const auto& item : entry.value.list()) {
        list.push_back(item.number());
      }
      result.set(name, std::move(list));
    } else {
      result.set(name, entry.value.number());
    }
  }
  return result;
}

void ResultHistory::select(std::optional<std::string> score_split, std::string score_name,
                           std::optional<bool> higher_is_better) {
  score_split_ = std::move(score_split);
  score_name_ = std::move(score_name);
  higher_is_better_ = higher_is_better.value_or(score_name_ != "loss");
}

void ResultHistory::append(std::int64_t index, const Result& result) {
  for (auto& row : rows_) {
    if (row.index == index) {
      row.result.merge(result);
      return;
    }
  }
  rows_.push_back({index, result});
}

std::optional<double> ResultHistory::score_of(const Row& row) const {
  const auto* split = score_split_ ? row.result.find(*score_split_) : nullptr;
  const auto* numbers = split != nullptr ? std::get_if<Result>(split) : nullptr;
  const double* score = numbers != nullptr ? numbers->number(score_name_) : nullptr;
  return score != nullptr ? std::optional(*score) : std::nullopt;
}

std::vector<std::pair<std::int64_t, double>> ResultHistory::scores() const {
  std::vector<std::pair<std::int64_t, double>> out;
  for (const auto& row : rows_) {
    if (const auto score = score_of(row)) {
      out.emplace_back(row.index, *score);
    }
  }
  return out;
}

std::vector<std::pair<std::int64_t, double>> ResultHistory::finite_scores() const {
  auto out = scores();
  std::erase_if(out, [](const auto& item) { return !std::isfinite(item.second); });
  return out;
}

std::optional<double> ResultHistory::latest_score() const {
  const auto all = scores();
  return all.empty() ? std::nullopt : std::optional<double>(all.back().second);
}

// Of equal scores the latest is best.
bool ResultHistory::is_better(double score, double than) const {
  return higher_is_better_ ? score >= than : score <= than;
}

std::int64_t ResultHistory::best_index() const {
  const auto* row = best();
  return row != nullptr ? row->index : 0;
}

const ResultHistory::Row* ResultHistory::saved_best() const {
  std::optional<double> best;
  std::optional<std::int64_t> saved;
  for (const auto& [index, score] : finite_scores()) {
    if (!best || is_better(score, *best)) {
      best = score;
    }
    if (is_same(score, *best)) {
      saved = index;
    }
  }
  return saved ? find(*saved) : nullptr;
}

const ResultHistory::Row* ResultHistory::find(std::int64_t index) const {
  for (const auto& row : rows_) {
    if (row.index == index) {
      return &row;
    }
  }
  return nullptr;
}

std::optional<double> ResultHistory::best_score() const {
  const auto* row = best();
  return row != nullptr ? score_of(*row) : std::nullopt;
}

const ResultHistory::Row* ResultHistory::latest() const { return rows_.empty() ? nullptr : &rows_.back(); }

const ResultHistory::Row* ResultHistory::best() const {
  const auto all = finite_scores();
  if (all.empty()) {
    return nullptr;
  }
  auto best = all.front();
  for (const auto& item : all) {
    if (is_better(item.second, best.second)) {
      best = item;
    }
  }
  return find(best.first);
}

bool ResultHistory::is_best() const {
  if (rows_.empty()) {
    return true;
  }
  const auto latest = score_of(rows_.back());
  const auto best = best_score();
  return latest && best && is_same(*latest, *best);
}

bool ResultHistory::is_improved(double min_delta) const {
  const auto latest = rows_.empty() ? std::nullopt : score_of(rows_.back());
  if (!latest || !std::isfinite(*latest)) {
    return false;
  }
  bool improved = true;
  std::optional<double> reference;
  for (const auto& item : finite_scores()) {
    const double gain = (higher_is_better_ ? 1 : -1) * (item.second - reference.value_or(item.second));
    // Scores may have been float32: rounding is no improvement.
    const double rounding = 1e-7 * std::max(std::abs(item.second), std::abs(reference.value_or(0)));
    improved = !reference || gain > min_delta + rounding;
    reference = improved ? item.second : reference;
  }
  return improved;
}

State ResultHistory::state_dict() const {
  State::List rows;
  for (const auto& row : rows_) {
    State entry;
    entry["index"] = row.index;
    entry["result"] = to_state(row.result);
    rows.push_back(std::move(entry));
  }
  return rows;
}

void ResultHistory::load_state_dict(const State& state) {
  std::vector<Row> rows;
  for (const auto& entry : state.list()) {
    rows.push_back({entry.at("index").integer(), result_from_state(entry.at("result"))});
  }
  rows_ = std::move(rows);
}

}  // namespace danling::inline v0
