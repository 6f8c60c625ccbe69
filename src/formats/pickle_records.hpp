// Pickles with objects of the classes of torch.distributed.checkpoint.
#pragma once

#include <string_view>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0::formats {

/// As read_pickle, but also reads objects of the classes of `pickle::find_record_class` as maps of `class` (the name)
/// and `state` (the fields or arguments). Dtypes become their names. A map with such objects as keys becomes a list of
/// pairs. Refuses any other class. @throws CheckpointError
RecordTree read_record_objects(std::string_view bytes, std::string_view source);

}  // namespace danling::inline v0::formats
