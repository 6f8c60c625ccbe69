// The tensors of a batch of any type, in a fixed order: the part that changes from step to step.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/data/tensors.hpp>
#include <danling/runner/model_input.hpp>
#include <danling/runner/model_output.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::detail {

/// A batch type of the program that lists its members: `auto parts() { return std::tie(input, target, weight); }`, and
/// a const overload.
template <class B>
concept ShowsParts = !Container<B> && requires(B& batch, const B& seen) {
  std::tuple_size<decltype(batch.parts())>::value;
  std::tuple_size<decltype(seen.parts())>::value;
};

/// True when all results of parts() are references that can be assigned to.
template <class Tuple>
struct References;
template <class... Parts>
struct References<std::tuple<Parts...>>
    : std::bool_constant<((std::is_lvalue_reference_v<Parts> && !std::is_const_v<std::remove_reference_t<Parts>>) &&
                          ...)> {};

/// Types whose tensors can all be listed.
template <class B>
struct Listable : std::bool_constant<std::same_as<B, at::Tensor> || std::same_as<B, State> ||
                                     std::same_as<B, data::Batch> || Plain<B>> {};
template <Container B>
struct Listable<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Listable>> {};
template <class Tuple>
struct ListableTuple;
template <class... Parts>
struct ListableTuple<std::tuple<Parts...>> : std::bool_constant<(Listable<std::remove_cvref_t<Parts>>::value && ...)> {
};
template <ShowsParts B>
struct Listable<B> : ListableTuple<decltype(std::declval<B&>().parts())> {};

/// The tensors of a batch in a fixed order, with undefined ones, and a number for everything else: kinds of values,
/// names, lengths, values.
struct BatchParts {
  std::vector<at::Tensor> tensors;
  std::vector<std::int64_t> others;
  std::vector<std::int64_t> counts;  ///< values that differ between batches and that few steps read: token counts
  bool is_whole = true;              ///< false: the type lists only its input and target
  void clear() {
    tensors.clear();
    others.clear();
    counts.clear();
    is_whole = true;
  }
};

template <class T>
std::int64_t hash_of(const T& value) {
  if constexpr (std::same_as<T, double>) {
    return std::bit_cast<std::int64_t>(value);
  } else if constexpr (std::same_as<T, float>) {
    return std::bit_cast<std::int32_t>(value);
  } else {
    return static_cast<std::int64_t>(std::hash<T>()(value));
  }
}

template <class B>
void collect_parts(const B& batch, BatchParts& out) {
  if constexpr (std::same_as<B, at::Tensor>) {
    out.tensors.push_back(batch);
  } else if constexpr (std::same_as<B, State>) {
    out.others.push_back(static_cast<std::int64_t>(batch.value().index()));
    if (batch.is_tensor()) {
      out.tensors.push_back(batch.tensor());
    } else if (batch.is_map()) {
      out.others.push_back(static_cast<std::int64_t>(batch.map().size()));
      for (const auto& entry : batch.map()) {
        out.others.push_back(entry.key.is_string() ? hash_of(entry.key.string()) : entry.key.integer());
        collect_parts(entry.value, out);
      }
    } else if (batch.is_list() || batch.is_tuple()) {
      out.others.push_back(static_cast<std::int64_t>(batch.items().size()));
      for (const auto& item : batch.items()) {
        if (!item.is_string()) {  // one text per sample, such as a file name
          collect_parts(item, out);
        }
      }
    } else if (batch.is_string()) {
      out.others.push_back(hash_of(batch.string()));
    } else if (batch.is_bytes()) {
      out.others.push_back(hash_of(batch.bytes().data));
    } else if (batch.is_double()) {
      out.others.push_back(hash_of(batch.number()));
    } else if (batch.is_integer() || batch.is_bool()) {
      out.others.push_back(batch.is_bool() ? batch.boolean() : batch.integer());
    }
  } else if constexpr (std::same_as<B, data::Batch>) {
    out.tensors.push_back(batch.input);
    out.tensors.push_back(batch.target);
    out.counts.push_back(batch.num_tokens.value_or(-1));
    out.counts.push_back(batch.loss_normalizer.value_or(-1));
    if (!batch.extra.is_null()) {
      collect_parts(batch.extra, out);
    }
  } else if constexpr (ShowsParts<B>) {
    static_assert(
        Listable<B>::value,
        "danling: parts() of a batch must return tensors, numbers, texts, States, containers of these, or structs "
        "with parts(); omit members that no step reads");
    static_assert(References<decltype(std::declval<B&>().parts())>::value,
                  "danling: parts() of a batch must return references, as std::tie does; the non-const overload must "
                  "return assignable members");
    std::apply([&](const auto&... parts) { (collect_parts(parts, out), ...); }, batch.parts());
  } else if constexpr (Mapping<B>) {
    out.others.push_back(static_cast<std::int64_t>(batch.size()));
    for (const auto& entry : batch) {
      collect_parts(entry.first, out);
      collect_parts(entry.second, out);
    }
  } else if constexpr (Container<B>) {
    const std::size_t place = out.others.size();
    out.others.push_back(0);
    each_part(batch, [&](const auto& part) {
      ++out.others[place];
      collect_parts(part, out);
    });
  } else if constexpr (Plain<B>) {
    out.others.push_back(hash_of(batch));
  } else {  // has no list of tensors: use those that the default steps read
    static_assert(
        !requires(B& whole) { whole.parts(); } && !requires { batch.parts(); },
        "danling: a batch type must list its members for recorded steps in two overloads: `auto parts() { return "
        "std::tie(input, target); }`, and a const overload");
    out.is_whole = false;
    const auto add = [&](const auto& part) {
      if constexpr (!std::same_as<std::remove_cvref_t<decltype(part)>, B>) {
        collect_parts(part, out);
      }
    };
    if constexpr (requires { danling::model_input(batch); }) {
      add(danling::model_input(batch));
    }
    if constexpr (HasModelTarget<B>) {
      add(danling::model_target(batch));
    }
  }
}

/// Replaces the tensors of a Listable batch with the results of `next()`, in the order of collect_parts.
template <class B, class Next>
void replace_tensors(B& batch, const Next& next) {
  if constexpr (std::same_as<B, at::Tensor>) {
    batch = next();
  } else if constexpr (std::same_as<B, State>) {
    batch = data::map_tensors(batch, [&](const at::Tensor&) { return next(); });
  } else if constexpr (std::same_as<B, data::Batch>) {
    batch.input = next();
    batch.target = next();
    if (!batch.extra.is_null()) {
      replace_tensors(batch.extra, next);
    }
  } else if constexpr (ShowsParts<B>) {
    std::apply([&](auto&... parts) { (replace_tensors(parts, next), ...); }, batch.parts());
  } else if constexpr (Container<B>) {
    each_part(batch, [&](auto& part) { replace_tensors(part, next); });
  }
}

}  // namespace danling::inline v0::detail
