#include "sweep_state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::concat;
using danling::detail::quote;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr auto where = "danling sweep";
constexpr int state_format = 1;

Json json_of(const TrialValues& values) {
  Json out = Json::object();
  for (const auto& [key, value] : values) {
    out[key] = value;
  }
  return out;
}

/// Returns the parts of the specification that must be equal when a sweep continues.
Json identity_of(const SweepSpec& spec) {
  return {{"program", spec.program},   {"method", to_text(spec.method)},
          {"score", spec.score},       {"mode", spec.higher_is_better ? "max" : "min"},
          {"resource", spec.resource}, {"goals", spec.goals},
          {"factor", spec.factor}};
}

Json json_of(const Trial& trial) {
  Json scores = Json::array();
  for (const auto& score : trial.scores) {
    scores.push_back({{"goal", score.goal}, {"score", score.score}, {"index", score.index}});
  }
  return {{"trial", trial.name()}, {"values", json_of(trial.values)}, {"status", trial.status},
          {"scores", scores},      {"seconds", trial.seconds},        {"starts", trial.starts},
          {"error", trial.error},  {"peak_bytes", trial.peak_bytes},  {"run", trial.run}};
}

void read_trial(const Json& json, Trial& out) {
  out.status = json.at("status").get<std::string>();
  for (const auto& score : json.at("scores")) {
    out.scores.push_back(
        {score.at("goal").get<std::int64_t>(), score.at("score").get<double>(), score.at("index").get<std::int64_t>()});
  }
  out.seconds = json.at("seconds").get<double>();
  out.starts = json.at("starts").get<std::int64_t>();
  out.error = json.at("error").get<std::string>();
  out.peak_bytes = json.at("peak_bytes").get<std::uint64_t>();
  out.run = json.at("run").get<std::string>();
}

}  // namespace

std::string Trial::name() const {
  std::string digits = std::to_string(number);
  return concat("trial-", std::string(digits.size() < 3 ? 3 - digits.size() : 0, '0'), digits);
}

const Trial::Score* Trial::score_of(std::int64_t goal) const {
  const auto found = std::find_if(scores.begin(), scores.end(), [&](const Score& score) { return score.goal == goal; });
  return found == scores.end() ? nullptr : &*found;
}

SweepState::SweepState(fs::path dir, const SweepSpec& spec) : dir_(std::move(dir)), spec_(spec) {
  for (const auto& folder : {dir_, dir_ / "logs", dir_ / "locks", runs_dir()}) {
    danling::ensure_dir(folder);
  }
  lock_ = ::open((dir_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  danling::detail::check<ConfigError>(lock_ >= 0, where, "expected a directory that can be written, got ",
                                      quote(std::strerror(errno)), " for ", quote(dir_.string()));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    danling::detail::fail<danling::StateError>(where, "expected ", quote(dir_.string()),
                                               " to be free, got another danling sweep that runs in it");
  }
  for (std::int64_t number = 0; number < spec.trials; ++number) {
    Trial trial;
    trial.number = number;
    trial.values = spec.values_of(number);
    trials_.push_back(std::move(trial));
  }
  try {
    load();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

SweepState::~SweepState() { ::close(lock_); }

void SweepState::load() {
  const auto file = dir_ / "sweep.json";
  std::error_code error;
  if (!fs::exists(file, error)) {
    return;
  }
  const auto json = Json::parse(danling::read_text(file), nullptr, false);
  const std::string hint = "; set another --dir, or remove it";
  danling::detail::check<ConfigError>(json.is_object() && json.contains("format") && json["format"].is_number_integer(),
                                      where, "expected the state of a sweep, got something else in ",
                                      quote(file.string()), hint);
  danling::detail::check<ConfigError>(json["format"].get<int>() <= state_format, where, "expected format ",
                                      state_format, ", got ", json["format"].get<int>(),
                                      ", which a newer danling wrote (file ", quote(file.string()), ")");
  try {
    const Json identity = identity_of(spec_);
    for (const auto& [key, value] : identity.items()) {
      danling::detail::check<ConfigError>(json.at(key) == value, where, "expected the sweep in ", quote(dir_.string()),
                                          ", got another ", key, ": ", value.dump(), " instead of ",
                                          json.at(key).dump(), hint);
    }
    const auto& stored = json.at("trials");
    danling::detail::check<ConfigError>(stored.size() <= trials_.size(), where, "expected at least the ", stored.size(),
                                        " trials of the sweep in ", quote(dir_.string()), ", got ", trials_.size(),
                                        hint);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      danling::detail::check<ConfigError>(stored[i].at("values") == json_of(trials_[i].values), where,
                                          "expected the parameters of the sweep in ", quote(dir_.string()),
                                          ", got others: ", trials_[i].name(), " had ", stored[i].at("values").dump(),
                                          ", now ", json_of(trials_[i].values).dump(), hint);
      read_trial(stored[i], trials_[i]);
    }
  } catch (const Json::exception& failure) {
    danling::detail::fail<ConfigError>(where, "expected the state of a sweep in ", quote(file.string()),
                                       ", got an error: ", failure.what(), hint);
  }
  continues_ = true;
}

void SweepState::save(const std::string& status) {
  Json out = {{"format", state_format}, {"status", status}};
  out.update(identity_of(spec_));
  auto& trials = out["trials"] = Json::array();
  for (const auto& trial : trials_) {
    trials.push_back(json_of(trial));
  }
  try {
    danling::write_atomic(dir_ / "sweep.json", out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    last_error_.clear();
  } catch (const danling::Error& error) {
    if (last_error_ != error.what()) {
      last_error_ = error.what();
      std::fprintf(stderr, "%s; the sweep continues and retries\n", error.what());
    }
  }
}

std::vector<const Trial*> SweepState::ranking() const {
  std::vector<const Trial*> out;
  for (const auto& trial : trials_) {
    out.push_back(&trial);
  }
  const auto is_before = [&](const Trial* a, const Trial* b) {
    const auto* left = a->last_score();
    const auto* right = b->last_score();
    if (left == nullptr || right == nullptr) {
      return left != nullptr && right == nullptr;
    }
    if (left->goal != right->goal) {
      return left->goal > right->goal;
    }
    return spec_.higher_is_better ? left->score > right->score : left->score < right->score;
  };
  std::stable_sort(out.begin(), out.end(), is_before);
  return out;
}

}  // namespace danling_command
