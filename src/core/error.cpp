#include <danling/core/error.hpp>

namespace danling::inline v0 {

// Out of line, so that each type has one vtable, in this library: programs catch errors across shared objects.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
StateError::~StateError() = default;
CheckpointError::~CheckpointError() = default;
NonFiniteError::~NonFiniteError() = default;
DistributedError::~DistributedError() = default;
MetricError::~MetricError() = default;

std::string detail::error_text(std::string_view where, std::initializer_list<TextPart> parts) {
  return concat("[", where, "] ", concat_parts(parts));
}

}  // namespace danling::inline v0
