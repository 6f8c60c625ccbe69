// Sums of gradient buckets by low-rank approximation.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <danling/distributed/powersgd.hpp>
#include <danling/distributed/reducer.hpp>

#include <distributed/bucket_exchange.hpp>

namespace danling::inline v0::detail {

/// A parameter's place in a bucket; its memory is a row-major matrix.
struct BucketPiece {
  std::size_t param = 0;
  std::int64_t offset = 0, numel = 0;
  std::int64_t rows = 0, columns = 0;  // 0: not a matrix
};

/// Splits a parameter: its outermost dimension in memory gives the rows, the others the columns.
BucketPiece piece_of(const at::Tensor& param, std::size_t position, std::int64_t offset);

class PowerSGDExchange : public BucketExchange {
 public:
  /// @param pieces  per bucket
  PowerSGDExchange(const Group& group, const std::vector<BucketShape>& shapes,
                   std::vector<std::vector<BucketPiece>> pieces, const PowerSGDOptions& options, bool shared,
                   std::chrono::milliseconds timeout);
  ~PowerSGDExchange() override;

  at::Tensor memory(std::size_t bucket) const override { return exact_->memory(bucket); }
  void start(std::size_t bucket) override;
  void poll() override;
  void finish_all() override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void set_loss_scale(const at::Tensor& scale) override { scale_ = scale; }
  void abort(std::string_view reason) override;
  std::string name() const override;

  /// Returns a state with an entry for each of `params` parameters.
  PowerSGDState state(std::size_t params) const;
  /// Skips entries of other shapes.
  void load_state(const PowerSGDState& state);

 private:
  struct Matrix;
  struct Bucket;

  bool compresses() const { return iteration_ >= options_.start_iter; }
  at::Tensor initial_factor(const Matrix& matrix) const;
  at::Tensor all_finite() const;
  void finish(Bucket& bucket, const at::Tensor& all_finite);

  PowerSGDOptions options_;
  std::int64_t iteration_ = 0;
  double ranks_;
  at::Tensor scale_;  // of the gradients, not of the errors; undefined: 1
  std::vector<Bucket> buckets_;
  std::string text_;
  /// Exchanges of whole gradients; of left factors and uncompressed gradients; of right factors.
  std::unique_ptr<BucketExchange> exact_, left_, right_;
};

/// Makes the columns orthonormal in place; divides by their norm plus `epsilon`. Zero columns stay zero.
void orthonormalize(const at::Tensor& matrix, double epsilon);

}  // namespace danling::inline v0::detail
