#include <danling/data/loader_base.hpp>

#include <algorithm>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {
std::string of_split(const std::string& split) { return split.empty() ? "" : concat(" (split ", quote(split), ")"); }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
}  // namespace

LoaderBase::LoaderBase(std::optional<std::int64_t> size, LoaderOptions options) : options_(std::move(options)) {
  check<ConfigError>(options_.batch_size > 0, "data.loader", "expected batch_size of at least 1, got ",
                     options_.batch_size, of_split(options_.split));
  if (!size) {
    check<ConfigError>(!options_.shuffle, "data.loader", "expected shuffle: false for a stream, got true",
                       of_split(options_.split), "; shuffle inside the stream");
    check<ConfigError>(options_.sampler == nullptr, "data.loader", "expected no sampler for a stream, got one",
                       of_split(options_.split));
    return;
  }
  check<DataError>(*size > 0, "data.loader", "expected a dataset with at least one record, got ", *size,
                   of_split(options_.split));
  sampler_ = options_.sampler;
  if (sampler_ != nullptr) {
    check<ConfigError>(!options_.shuffle, "data.loader", "expected either shuffle or a sampler, got both",
                       of_split(options_.split));
  } else if (options_.shuffle) {
    sampler_ = std::make_shared<RandomSampler>(*size, options_.seed, options_.split);
  } else {
    sampler_ = std::make_shared<SequentialSampler>(*size);
  }
  indices_.reserve(static_cast<std::size_t>(std::min(options_.batch_size, sampler_->size())));
}

BatchSampler::~BatchSampler() = default;

LoaderBase::~LoaderBase() = default;

std::optional<std::int64_t> LoaderBase::num_samples() const {
  return sampler_ != nullptr ? std::optional<std::int64_t>(sampler_->size()) : std::nullopt;
}

std::optional<std::int64_t> LoaderBase::length() const {
  if (sampler_ == nullptr) {
    return std::nullopt;
  }
  return options_.drop_last ? sampler_->size() / options_.batch_size : ceil_div(sampler_->size(), options_.batch_size);
}

std::int64_t LoaderBase::size_of_next() const {
  const std::int64_t left = sampler_->size() - samples_;
  return left >= options_.batch_size ? options_.batch_size : options_.drop_last ? 0 : left;
}

void LoaderBase::rewind(std::int64_t epoch) {
  drop();
  epoch_ = epoch;
  samples_ = 0;
  batches_ = 0;
  current_size_ = 0;
  last_ = false;
  looked_ = false;
  ahead_size_ = 0;
  ahead_error_ = nullptr;
}

void LoaderBase::start_epoch(std::int64_t epoch) {
  check<StateError>(epoch >= 0, "data.loader", "expected an epoch of at least 0, got ", epoch);
  const bool continues = loaded_ && epoch == epoch_;
  loaded_ = false;
  if (!continues) {
    rewind(epoch);
  }
  if (sampler_ != nullptr) {
    sampler_->set_epoch(epoch);
  } else if (!continues) {
    reset_stream(epoch);
  }
  started_ = true;
  untouched_ = true;
}

void LoaderBase::start_upcoming_epoch() {
  if (started_ && untouched_ && !loaded_) {
    return;
  }
  start_epoch(loaded_ && epoch_ >= 0 ? epoch_ : epoch_ + 1);
}

bool LoaderBase::next() {
  check<StateError>(started_ && !loaded_, "data.loader", "expected start_epoch() before next()");
  untouched_ = false;
  return sampler_ != nullptr ? next_indexed() : next_from_stream();
}

bool LoaderBase::next_indexed() {
  const std::int64_t count = size_of_next();
  if (count == 0) {
    drop();
    current_size_ = 0;
    last_ = false;
    return false;
  }
  indices_.resize(static_cast<std::size_t>(count));
  sampler_->fill(samples_, indices_);
  current_size_ = 0;
  last_ = false;
  current_size_ = fetch(indices_);
  samples_ += count;
  ++batches_;
  last_ = size_of_next() == 0;
  return true;
}

void LoaderBase::look_ahead() {
  ahead_state_ = stream_state();
  ahead_size_ = 0;
  ahead_error_ = nullptr;
  try {
    ahead_size_ = fetch_ahead(options_.batch_size);
  } catch (...) {
    ahead_error_ = std::current_exception();  // belongs to the next batch, not to the one that is current now
  }
  if (options_.drop_last && ahead_size_ < options_.batch_size) {
    ahead_size_ = 0;
  }
  looked_ = true;
}

bool LoaderBase::next_from_stream() {
  if (!looked_) {
    look_ahead();
  }
  if (ahead_error_ != nullptr) {
    looked_ = false;
    std::rethrow_exception(std::exchange(ahead_error_, nullptr));
  }
  if (ahead_size_ == 0) {
    drop();
    current_size_ = 0;
    last_ = false;
    return false;
  }
  take_ahead();
  current_size_ = ahead_size_;
  samples_ += ahead_size_;
  ++batches_;
  look_ahead();
  last_ = ahead_size_ == 0 && ahead_error_ == nullptr;
  return true;
}

State LoaderBase::state_dict() const {
  State state;
  state["epoch"] = epoch_;
  state["samples"] = samples_;
  state["batches"] = batches_;
  if (sampler_ != nullptr) {
    state["sampler"] = sampler_->state_dict();
  } else {
    state["stream"] = looked_ ? ahead_state_ : stream_state();
  }
  return state;
}

void LoaderBase::load_state_dict(const State& state) {
  const std::int64_t epoch = state.at("epoch").integer();
  const std::int64_t samples = state.at("samples").integer();
  const std::int64_t batches = state.at("batches").integer();
  const bool of_stream = state.map().contains("stream");
  check<StateError>(of_stream == (sampler_ == nullptr), "data.loader", "expected the state of a ",
                    sampler_ == nullptr ? "stream" : "dataset", ", got that of a ", of_stream ? "stream" : "dataset",
                    of_split(options_.split));
  check<StateError>(epoch >= -1 && samples >= 0 && batches >= 0, "data.loader",
                    "expected an epoch of at least -1 and a position of at least 0, got epoch ", epoch, ", samples ",
                    samples, ", batches ", batches, of_split(options_.split));
  if (sampler_ == nullptr) {
    load_stream_state(state.at("stream"));
  } else {
    check<StateError>(samples <= sampler_->size(), "data.loader", "expected a position of at most ", sampler_->size(),
                      " samples, got ", samples, of_split(options_.split));
    try {
      sampler_->load_state_dict(state.at("sampler"));
    } catch (const StateError& error) {
      throw StateError(concat(error.what(), of_split(options_.split)));
    }
  }
  rewind(epoch);
  samples_ = samples;
  batches_ = sampler_ == nullptr ? batches : ceil_div(samples, options_.batch_size);
  started_ = false;
  loaded_ = true;
}

}  // namespace danling::inline v0::data
