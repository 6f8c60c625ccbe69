#include <danling/data/dataset_like.hpp>

#include <exception>

#include <c10/util/Exception.h>

#include <danling/data/throw_if_cancelled.hpp>

namespace danling::inline v0::data::detail {

namespace {

/// An error whose message already contains its record.
class RecordError : public DataError {
 public:
  using DataError::DataError;
};

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

/// Returns ` (file 'x', line 3)`; empty if the dataset has no source, or `what` already contains the file.
std::string source_text(const State& source, std::string_view what) {
  std::string out;
  for (const auto& [name, value] : source.is_map() ? source.map() : State::Map()) {
    const std::string* const text = value.is_string() ? &value.string() : nullptr;
    if (text != nullptr && what.find(*text) != std::string_view::npos) {
      return {};
    }
    if (name.is_string() && (text != nullptr || value.is_integer())) {
      out += concat(out.empty() ? " (" : ", ", name.string(), " ",
                    text != nullptr ? quote(*text) : to_text(value.integer()));
    }
  }
  return out.empty() ? out : out + ")";
}

}  // namespace

void rethrow_for_record(const SampleInfo& info, std::int64_t index, const State& source) {
  throw_if_cancelled();  // a cancelled sample is not an error of its record
  std::string what = "an exception that is not a std::exception";
  try {
    throw;
  } catch (const RecordError&) {
    throw;
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): `what` covers it
  }
  std::throw_with_nested(RecordError(concat(what.starts_with('[') ? "" : "[data.read] expected a sample, got: ", what,
                                            source_text(source, what), "; while reading ", record_text(info, index))));
}

void rethrow_for_sample(const CollateError& error, const SampleInfo& info, std::int64_t index,
                        const std::optional<std::string>& uuid) {
  throw CollateError(error.sample(), concat(error.what(), ", which is ", record_text(info, index),
                                            uuid ? concat(" with uuid ", quote(*uuid)) : ""));
}

}  // namespace danling::inline v0::data::detail
