// A tree that a file holds as a State.
#pragma once

#include <danling/formats/tensor_record.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// A tree without tensors, as JSON is one, as one that could have some.
State without_records(formats::RecordTree tree);

}  // namespace danling::inline v0::data
