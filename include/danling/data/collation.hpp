// Names of the collations that a loader can apply.
#pragma once

#include <array>
#include <string_view>

namespace danling::inline v0::data {

/// Collation of samples of the type `Sample`: `stack` needs equal shapes, `padded` is `collate_padded`, `nested` is
/// `collate_nested`.
enum class Collation { stack, padded, nested };
constexpr auto names_of(Collation) { return std::to_array<std::string_view>({"stack", "padded", "nested"}); }

}  // namespace danling::inline v0::data
