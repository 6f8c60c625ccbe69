// The loader of the default Batch.
#include <danling/data/loader.hpp>

namespace danling::inline v0::data {

template class detail::SourceReader<Batch>;
template class Loader<Batch>;

}  // namespace danling::inline v0::data
