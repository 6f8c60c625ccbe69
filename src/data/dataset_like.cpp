#include <danling/data/dataset_like.hpp>

#include <exception>

#include <c10/util/Exception.h>

namespace danling::inline v0::data::detail {

namespace {

std::string record_text(const SampleInfo& info, std::int64_t index) {
  const std::string& split = info.batch().split;
  std::string where = concat("record ", info.index());
  if (index != info.index()) {
    where += concat(" (", index, " in the dataset below)");
  }
  if (!split.empty()) {
    where += concat(" of split ", quote(split));
  }
  return where;
}

}  // namespace

void rethrow_for_record(const SampleInfo& info, std::int64_t index) {
  std::string what = "an exception that is no std::exception";
  try {
    throw;
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): `what` says so
  }
  std::throw_with_nested(DataError(concat(what.starts_with('[') ? "" : "[data.read] expected a sample, got: ", what,
                                          "; while reading ", record_text(info, index))));
}

void rethrow_for_sample(const CollateError& error, const SampleInfo& info, std::int64_t index,
                        const std::optional<std::string>& uuid) {
  throw CollateError(error.sample(), concat(error.what(), ", which is ", record_text(info, index),
                                            uuid ? concat(" with uuid ", quote(*uuid)) : ""));
}

}  // namespace danling::inline v0::data::detail
