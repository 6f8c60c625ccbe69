#include <metrics/metric_errors.hpp>

#include <stdexcept>
#include <string>
#include <typeinfo>

#include <c10/util/Exception.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

// A derived type may hold more than its text: only exactly these types are rethrown.
template <class E>
void rethrow_as(const std::exception& error, const std::string& place) {
  if (typeid(error) == typeid(E)) {
    throw E(concat(error.what(), "; ", place));
  }
}

template <class... E>
void rethrow_as_one_of(const std::exception& error, const std::string& place) {
  (rethrow_as<E>(error, place), ...);
}

}  // namespace

void rethrow_from_metric(std::string_view name) {
  const std::string place = concat("in metric ", quote(name));
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(place);
    throw;
  } catch (const std::exception& error) {
    rethrow_as_one_of<MetricError, ConfigError, DataError, StateError, NonFiniteError, Error, std::runtime_error,
                      std::logic_error, std::invalid_argument, std::out_of_range, std::domain_error>(error, place);
    throw;
  }
}

}  // namespace danling::inline v0::detail
