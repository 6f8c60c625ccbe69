// Errors of a step: adds the position in the run and the shapes of the inputs.
#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <typeinfo>

#include <c10/util/Exception.h>

#include <danling/data/collate.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/tensors/detail/describe.hpp>

#include <distributed/local_error.hpp>

namespace danling::inline v0 {

namespace {

/// Removes the backtrace from LibTorch's message, or the stack of a TorchScript function, which precedes the message.
std::string sentence(std::string text) {
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  if (text.starts_with("The following operation failed in the TorchScript interpreter")) {
    return text.substr(text.rfind('\n') + 1);
  }
  return text.substr(0, text.find('\n'));
}

struct Remedy {
  std::string_view begin;  ///< of LibTorch's message
  std::string_view remedy;
};

// For messages that do not say what to change.
constexpr Remedy remedies[] = {
    {"0D or 1D target tensor expected", "class indices have shape [N], for outputs [N, C]; use target.squeeze(-1)"},
    {"expected target dtype to be Long", "convert the class indices with .to(torch::kLong)"},
    {"Found dtype Long but expected", "convert the targets with .to(torch::kFloat)"},
    {"result type Float can't be cast to the desired output type Long",
     "an operation writes fractions to integers, such as a loss to its targets; convert these with .to(torch::kFloat)"},
    {"mat1 and mat2 must have the same dtype", "convert the inputs to the dtype of the model"},
    {"Input type (", "convert the inputs to the dtype of the model"},
    {"index out of range in self", "indices of an embedding, or of index_select, are from 0 to its size - 1"},
    {"all elements of input should be between 0 and 1",
     "the loss takes probabilities (NaN is none); BCEWithLogitsLoss takes outputs of a linear layer"},
    {"all elements of target should be between 0 and 1", "targets of a binary loss are from 0 to 1"},
    {"Trying to backward through the graph a second time",
     "call detach() on what a step keeps for the next one; add losses that share a graph, and call backward(a + b) "
     "once; "
     "for two models with one loss call backward(loss, name, /*retain_graph=*/true) for all but the last"},
    {"Expected more than 1 value per channel",
     "a batch norm cannot train on one sample; set `drop_last` or another `batch_size` of the dataloader"},
};

std::string with_remedy(std::string message) {
  const auto found = std::find_if(std::begin(remedies), std::end(remedies),
                                  [&](const Remedy& known) { return message.starts_with(known.begin); });
  if (found != std::end(remedies)) {
    return concat(message, "; ", found->remedy);
  }
  if (message.starts_with("Target ") && message.ends_with(" is out of bounds.")) {
    message.pop_back();
    return concat(message, "; targets are class indices from 0 to C - 1, for outputs [N, C], or `ignore_index`");
  }
  return message;
}

/// True if an exception's class is from danling, LibTorch or the standard library, with or without a nested exception:
/// its text then holds all of its information.
bool is_plain(const std::exception& error) {
  const std::string whole = detail::name_of(typeid(error));
  std::string_view name = whole;
  for (const std::string_view nested : {"std::_Nested_exception<", "std::__nested<", "std::__1::__nested<"}) {
    if (name.starts_with(nested)) {
      name.remove_prefix(nested.size());
    }
  }
  return name.starts_with("danling::") || name.starts_with("c10::") || name.starts_with("std::") ||
         name.starts_with("torch::");
}

template <class E>
[[noreturn]] void throw_at(const std::string& what, const std::string& place) {
  std::throw_with_nested(E(concat(what, "; ", place)));
}

}  // namespace

void TorchRunnerBase::rethrow_from_step(const char* hook, const std::string& shapes) {
  // Epoch and update in progress, counted from 1; outside a step, those done.
  const bool updates = open_step_ != nullptr && !open_step_->updated;
  const std::string place =
      concat("in ", hook, " of split ", quote(split_), ", epoch ", state_.train.epoch + (at_boundary() ? 0 : 1),
             ", step ", state_.train.global_step + (updates ? 1 : 0), ", with ", shapes);
  try {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_plain(error)) {
      logger().warning(concat(error.what(), "; ", place));
      throw;
    }
    const std::string what = error.what();
    if (const auto* of_samples = dynamic_cast<const data::CollateError*>(&error)) {
      std::throw_with_nested(data::CollateError(of_samples->sample(), concat(what, "; ", place)));
    } else if (dynamic_cast<const ConfigError*>(&error) != nullptr) {
      throw_at<ConfigError>(what, place);
    } else if (dynamic_cast<const DataError*>(&error) != nullptr) {
      throw_at<DataError>(what, place);
    } else if (dynamic_cast<const StateError*>(&error) != nullptr) {
      throw_at<StateError>(what, place);
    } else if (dynamic_cast<const CheckpointError*>(&error) != nullptr) {
      throw_at<CheckpointError>(what, place);
    } else if (dynamic_cast<const NonFiniteError*>(&error) != nullptr) {
      throw_at<NonFiniteError>(what, place);
    } else if (dynamic_cast<const detail::LocalError*>(&error) != nullptr) {
      throw_at<detail::LocalError>(what, place);
    } else if (dynamic_cast<const DistributedError*>(&error) != nullptr) {
      throw_at<DistributedError>(what, place);
    } else if (dynamic_cast<const MetricError*>(&error) != nullptr) {
      throw_at<MetricError>(what, place);
    } else if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) {
      if (shapes.starts_with("input none") && detail::is_of_undefined_tensor(of_torch->what_without_backtrace())) {
        throw_at<DataError>(
            concat("[runner.", hook, "] expected an input in the batch, got none; set the batch's `input`"), place);
      }
      throw_at<Error>(concat("[libtorch] ", with_remedy(sentence(of_torch->what_without_backtrace()))), place);
    } else {
      throw_at<Error>(sentence(what), place);
    }
  } catch (...) {
    logger().warning(concat("an exception that is not a std::exception; ", place));
    throw;
  }
}

void TorchRunnerBase::fail_loss(const char* hook, const at::Tensor& loss) {
  fail<StateError>(concat("runner.", hook), "expected a loss of one element, got shape [",
                   danling::detail::join(loss.sizes()), "]; reduce it by its mean");
}

}  // namespace danling::inline v0
