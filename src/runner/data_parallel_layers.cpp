#include <runner/data_parallel_layers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/nn/sync_batch_norm.hpp>

#include <runner/rank_messages.hpp>

namespace danling::inline v0::detail {
namespace {

using Layer = std::shared_ptr<nn::SyncBatchNormImpl>;

std::vector<std::pair<std::string, Layer>> synced_layers(const ModelHandle& model) {
  std::vector<std::pair<std::string, Layer>> out;
  if (model.module() != nullptr) {
    for (const auto& item : model.module()->named_modules()) {
      if (auto layer = std::dynamic_pointer_cast<nn::SyncBatchNormImpl>(item.value())) {
        out.emplace_back(item.key(), std::move(layer));
      }
    }
  }
  return out;
}

// A message contains the number of the layer and its share.
constexpr std::size_t number_size = sizeof(std::int64_t);

std::int64_t layer_of(const std::string& message) {
  std::int64_t number = -1;
  std::memcpy(&number, message.data(), std::min(number_size, message.size()));
  return number;
}

[[noreturn]] void fail_elsewhere(std::int64_t number, std::size_t rank, const std::string& place) {
  fail<DistributedError>("nn.SyncBatchNorm", "expected all ranks with a batch at the same layer, number ", number + 1,
                         ", got rank ", rank, place,
                         "; all ranks must call the layers equally often and in the same order, forward and backward");
}

}  // namespace

struct SyncedLayers::Meetings {
  Group group;
  bool in_step = false;

  std::vector<std::string> exchange(std::int64_t number, std::string_view share) const {
    if (!in_step) {
      return {};
    }
    std::string message(number_size, '\0');
    std::memcpy(message.data(), &number, number_size);
    message.append(share);
    std::vector<std::string> shares;
    for (const Message& other : meet(group, Purpose::statistics, message)) {
      if (other.purpose == Purpose::ended) {
        shares.emplace_back();
        continue;
      }
      if (other.purpose != Purpose::statistics) {
        fail_elsewhere(number, shares.size(), " elsewhere in its step");
      } else if (layer_of(other.body) != number) {
        fail_elsewhere(number, shares.size(), concat(" at number ", layer_of(other.body) + 1));
      }
      shares.push_back(other.body.substr(number_size));
    }
    return shares;
  }
};

SyncedLayers::SyncedLayers(Group group) : meetings_(std::make_shared<Meetings>()) {
  meetings_->group = std::move(group);
}

SyncedLayers::~SyncedLayers() {
  for (const auto& item : layers_) {
    if (const Layer layer = item.lock()) {
      layer->set_group(Group());
    }
  }
}

void SyncedLayers::add(const ModelHandle& model) {
  for (const auto& [name, layer] : synced_layers(model)) {
    // A graph may outlive this object.
    const auto number = static_cast<std::int64_t>(layers_.size());
    layer->set_group(meetings_->group, [meetings = std::weak_ptr(meetings_), number](std::string_view share) {
      const auto held = meetings.lock();
      return held != nullptr ? held->exchange(number, share) : std::vector<std::string>();
    });
    layers_.push_back(layer);
  }
}

void SyncedLayers::set_in_step(bool in_step) noexcept { meetings_->in_step = in_step; }

void SyncedLayers::join_exchange(const std::vector<std::string>& shares) {
  std::int64_t number = -1;
  std::vector<std::string> of_layer;
  for (const std::string& message : shares) {
    if (!message.empty()) {
      if (number >= 0 && layer_of(message) != number) {  // the other ranks then fail too
        fail_elsewhere(number, of_layer.size(), concat(" at number ", layer_of(message) + 1));
      }
      number = layer_of(message);
    }
    of_layer.push_back(message.empty() ? std::string() : message.substr(number_size));
  }
  if (number >= 0 && number < std::ssize(layers_)) {
    if (const Layer layer = layers_[static_cast<std::size_t>(number)].lock()) {
      layer->join_exchange(of_layer);
    }
  }
}

void refuse_synced_layers(const ModelHandle& model, std::string_view setting, std::string_view why) {
  const auto layers = synced_layers(model);
  if (!layers.empty()) {
    fail<ConfigError>("runner.materialize_model", "expected no SyncBatchNorm with ", setting, ", got ",
                      quote(layers.front().first), ": ", why);
  }
}

}  // namespace danling::inline v0::detail
