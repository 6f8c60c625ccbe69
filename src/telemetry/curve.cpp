// Down-samples curves.
#include <algorithm>
#include <cmath>

#include <danling/telemetry/metrics_reader.hpp>

namespace danling::inline v0 {
namespace {

void merge(CurveBucket& into, const CurveBucket& from) {
  if (from.count > 0) {
    if (into.count == 0 || from.lowest.value < into.lowest.value) {
      into.lowest = from.lowest;
    }
    if (into.count == 0 || from.highest.value > into.highest.value) {
      into.highest = from.highest;
    }
    into.sum += from.sum;
    into.count += from.count;
  }
  if (into.non_finite == 0) {
    into.first_non_finite = from.first_non_finite;
  }
  into.non_finite += from.non_finite;
}

/// Returns the bucket of `index`: usually the last one, unless steps decreased.
CurveBucket& bucket_at(std::vector<CurveBucket>& buckets, std::int64_t index) {
  if (buckets.empty() || buckets.back().index < index) {
    buckets.push_back({.index = index, .lowest = {}, .highest = {}, .first_non_finite = {}});
    return buckets.back();
  }
  auto at = buckets.end() - 1;
  if (at->index != index) {
    at = std::lower_bound(buckets.begin(), buckets.end(), index,
                          [](const CurveBucket& bucket, std::int64_t wanted) { return bucket.index < wanted; });
    if (at->index != index) {
      at = buckets.insert(at, {.index = index, .lowest = {}, .highest = {}, .first_non_finite = {}});
    }
  }
  return *at;
}

void double_width(MetricCurve& curve) {
  curve.width *= 2;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < curve.buckets.size(); ++i) {
    CurveBucket bucket = curve.buckets[i];
    bucket.index /= 2;
    if (kept > 0 && curve.buckets[kept - 1].index == bucket.index) {
      merge(curve.buckets[kept - 1], bucket);
    } else {
      curve.buckets[kept++] = bucket;
    }
  }
  curve.buckets.resize(kept);
}

}  // namespace

double CurveBucket::mean() const {
  if (count == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // A sum of large values may overflow to infinity.
  const double mean = sum / static_cast<double>(count);
  return mean >= lowest.value ? std::min(mean, highest.value) : lowest.value;
}

void MetricCurve::add(CurvePoint point, std::size_t max_buckets) {
  const auto step = static_cast<std::int64_t>(point.step);
  // Most points belong to the last bucket, and this multiplication is faster than a division.
  const bool in_last =
      !buckets.empty() && step >= buckets.back().index * width && step - buckets.back().index * width < width;
  CurveBucket& bucket = in_last ? buckets.back() : bucket_at(buckets, step / width);
  if (std::isfinite(point.value)) [[likely]] {
    if (bucket.count == 0 || point.value < bucket.lowest.value) {
      bucket.lowest = point;
    }
    if (bucket.count == 0 || point.value > bucket.highest.value) {
      bucket.highest = point;
    }
    ++bucket.count;
    bucket.sum += point.value;
  } else if (bucket.non_finite++ == 0) {
    bucket.first_non_finite = point;
  }
  last = point;
  ++count;
  while (buckets.size() > max_buckets) {
    double_width(*this);
  }
}

void MetricCurve::append(const MetricCurve& other, std::size_t max_buckets) {
  if (other.count == 0) {
    return;
  }
  while (width < other.width) {
    double_width(*this);
  }
  for (const auto& bucket : other.buckets) {
    CurveBucket moved = bucket;
    moved.index /= width / other.width;  // both are powers of two
    merge(bucket_at(buckets, moved.index), moved);
  }
  last = other.last;
  count += other.count;
  while (buckets.size() > max_buckets) {
    double_width(*this);
  }
}

}  // namespace danling::inline v0
