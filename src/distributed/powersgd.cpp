#include <distributed/powersgd.hpp>

#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

// Products of 16-bit gradients would lose too much precision.
at::ScalarType factor_dtype(at::ScalarType gradients) { return gradients == at::kDouble ? at::kDouble : at::kFloat; }

std::string how(const std::string& text) { return text.empty() ? "" : concat(" by ", text); }

}  // namespace

struct PowerSGDExchange::Matrix {
  BucketPiece piece;
  std::int64_t rank = 0;
  at::Tensor gradient;     // [rows, columns], in the bucket
  at::Tensor left, right;  // [rows, rank] and [columns, rank], exchanged between ranks
  at::Tensor factor;       // [columns, rank], with which the next product starts
  at::Tensor error;        // compression error of this rank
  at::Tensor sent;         // during an update: gradient + error
};

struct PowerSGDExchange::Bucket {
  std::vector<Matrix> matrices;
  std::vector<std::pair<at::Tensor, at::Tensor>> exact;  // uncompressed gradients, and their exchanged copies
};

BucketPiece piece_of(const at::Tensor& param, std::size_t position, std::int64_t offset) {
  const std::int64_t reals = param.is_complex() ? 2 * param.numel() : param.numel();
  BucketPiece out{.param = position, .offset = offset, .numel = reals, .rows = 0, .columns = 0};
  if (param.dim() > 1 && out.numel > 0 && !param.is_complex()) {
    std::int64_t outermost = 0;
    for (std::int64_t dim = 1; param.is_non_overlapping_and_dense() && dim < param.dim(); ++dim) {
      outermost = param.stride(dim) > param.stride(outermost) ? dim : outermost;
    }
    out.rows = param.size(outermost);
    out.columns = out.numel / out.rows;
  }
  return out;
}

// Modified Gram-Schmidt. Without epsilon, each column is orthogonalized twice: rounding leaves a remainder of a column
// that depends on earlier ones. If the second pass removes most of it, the column is set to zero.
void orthonormalize(const at::Tensor& matrix, double epsilon) {
  const at::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    const at::Tensor column = matrix.select(1, i);
    const auto project = [&] {
      for (std::int64_t j = 0; j < i; ++j) {
        const at::Tensor before = matrix.select(1, j);
        column.sub_(before.mul(before.dot(column)));
      }
    };
    project();
    const at::Tensor norm = column.norm().add_(epsilon);
    column.div_(at::where(norm.eq(0), 1.0, norm));
    if (epsilon == 0.0 && i > 0) {
      project();
      const at::Tensor rest = column.norm();
      column.copy_(at::where(rest.lt(0.5), 0.0, column.div(rest)));  // NaN stays NaN
    }
  }
}

PowerSGDExchange::PowerSGDExchange(const Group& group, const std::vector<BucketShape>& shapes,
                                   std::vector<std::vector<BucketPiece>> pieces, const PowerSGDOptions& options,
                                   bool shared, std::chrono::milliseconds timeout)
    : options_(options), ranks_(group.size()) {
  exact_ = make_exchange(group, shapes, shared, timeout, text_);
  const auto rank_of = [&](const BucketPiece& piece) -> std::int64_t {
    const std::int64_t rank = std::min({options_.rank, piece.rows, piece.columns});
    const auto factors = static_cast<double>((piece.rows + piece.columns) * rank);
    return factors * options_.min_compression_rate < static_cast<double>(piece.numel) ? rank : 0;
  };
  std::vector<BucketShape> left = shapes, right = shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    left[i].numel = right[i].numel = 0;
    left[i].dtype = right[i].dtype = factor_dtype(shapes[i].dtype);
    for (const BucketPiece& piece : pieces[i]) {
      const std::int64_t rank = rank_of(piece);
      left[i].numel += rank > 0 ? piece.rows * rank : piece.numel;
      right[i].numel += piece.columns * rank;
    }
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {  // skip empty buckets
    left[i].numel = std::max<std::int64_t>(left[i].numel, 1);
    right[i].numel = std::max<std::int64_t>(right[i].numel, 1);
  }
  std::string text;
  left_ = make_exchange(group, left, shared, timeout, text);
  right_ = make_exchange(group, right, shared, timeout, text);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Bucket bucket;
    std::int64_t left_at = 0, right_at = 0;
    const auto take = [](const at::Tensor& memory, std::int64_t& at, std::int64_t size) {
      return memory.narrow(0, std::exchange(at, at + size), size);
    };
    for (const BucketPiece& piece : pieces[i]) {
      const at::Tensor gradient = exact_->memory(i).narrow(0, piece.offset, piece.numel);
      if (const std::int64_t rank = rank_of(piece); rank > 0) {
        Matrix matrix;
        matrix.piece = piece;
        matrix.rank = rank;
        matrix.gradient = gradient.view({piece.rows, piece.columns});
        matrix.left = take(left_->memory(i), left_at, piece.rows * rank).view({piece.rows, rank});
        matrix.right = take(right_->memory(i), right_at, piece.columns * rank).view({piece.columns, rank});
        bucket.matrices.push_back(std::move(matrix));
      } else {
        bucket.exact.emplace_back(gradient, take(left_->memory(i), left_at, piece.numel));
      }
    }
    buckets_.push_back(std::move(bucket));
  }
}

PowerSGDExchange::~PowerSGDExchange() = default;

// Independent of the buckets and of earlier draws.
at::Tensor PowerSGDExchange::initial_factor(const Matrix& matrix) const {
  const std::uint64_t number = (options_.seed * 1000003 + matrix.piece.param) * 1000003;
  const at::Generator generator =
      at::detail::createCPUGenerator(number + static_cast<std::uint64_t>(options_.warm_start ? 0 : iteration_));
  return at::randn({matrix.piece.columns, matrix.rank}, generator, at::TensorOptions().dtype(at::kFloat))
      .to(matrix.right.options());
}

void PowerSGDExchange::start(std::size_t index) {
  if (!compresses()) {
    exact_->start(index);
    return;
  }
  const at::NoGradGuard no_grad;
  Bucket& bucket = buckets_[index];
  for (const auto& [gradient, wire] : bucket.exact) {
    wire.copy_(gradient);
  }
  for (Matrix& matrix : bucket.matrices) {
    if (!matrix.factor.defined() || !options_.warm_start) {
      matrix.factor = initial_factor(matrix);
    }
    orthonormalize(matrix.factor, options_.orthogonalization_epsilon);
    matrix.sent = matrix.gradient.to(matrix.left.scalar_type());
    if (matrix.error.defined()) {
      const at::Tensor error = scale_.defined() ? matrix.error.mul(scale_) : matrix.error;
      matrix.sent = matrix.sent.is_same(matrix.gradient) ? matrix.sent.add_(error) : matrix.sent.add(error);
    }
    at::mm_out(matrix.left, matrix.sent, matrix.factor);
  }
  left_->start(index);
}

void PowerSGDExchange::poll() { (compresses() ? left_ : exact_)->poll(); }

void PowerSGDExchange::finish_all() {
  const at::NoGradGuard no_grad;
  if (compresses()) {
    left_->finish_all();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      for (Matrix& matrix : buckets_[i].matrices) {
        orthonormalize(matrix.left, options_.orthogonalization_epsilon);
        at::mm_out(matrix.right, matrix.sent.t(), matrix.left);
      }
      right_->start(i);
    }
    right_->finish_all();
    const at::Tensor finite = all_finite();
    for (Bucket& bucket : buckets_) {
      finish(bucket, finite);
    }
  } else {
    exact_->finish_all();
  }
  ++iteration_;
}

// Returns true if the sums of all buckets are finite: a gradient scaler skips the whole update otherwise. The same on
// all ranks.
at::Tensor PowerSGDExchange::all_finite() const {
  const at::Device device = buckets_.empty() ? at::Device(at::kCPU) : exact_->memory(0).device();
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const Bucket& bucket : buckets_) {
    for (const auto& [gradient, wire] : bucket.exact) {
      sum.add_(wire.mul(0).sum());  // zeros, or NaN
    }
    for (const Matrix& matrix : bucket.matrices) {
      sum.add_(matrix.right.mul(0).sum());
    }
  }
  return at::isfinite(sum);
}

// Each rank keeps its share of the compression error, so that the shares add up to the whole. Non-finite sums leave the
// state unchanged; it would stay non-finite.
void PowerSGDExchange::finish(Bucket& bucket, const at::Tensor& all_finite) {
  for (const auto& [gradient, wire] : bucket.exact) {
    gradient.copy_(wire);
  }
  for (Matrix& matrix : bucket.matrices) {
    const at::Tensor sum = matrix.left.mm(matrix.right.t());
    const at::Tensor finite = all_finite.logical_and(at::isfinite(sum.sum()));
    if (options_.use_error_feedback) {
      const at::Tensor before = matrix.error.defined() ? matrix.error : at::zeros_like(sum);
      const at::Tensor lost = matrix.sent.sub(sum, 1.0 / ranks_);
      matrix.error = at::where(finite, scale_.defined() ? lost.div(scale_) : lost, before);
    }
    // Skips zero columns, which would stay zero. Stores the mean over ranks, because epsilon is relative to it.
    const at::Tensor keeps = finite.logical_and(matrix.right.abs().sum(0, /*keepdim=*/true).gt(0));
    matrix.factor = at::where(keeps, matrix.right.div(ranks_), matrix.factor);
    matrix.gradient.copy_(sum);
    matrix.sent.reset();
  }
}

void PowerSGDExchange::set_timeout(std::chrono::milliseconds timeout) {
  for (const auto& exchange : {exact_.get(), left_.get(), right_.get()}) {
    exchange->set_timeout(timeout);
  }
}

void PowerSGDExchange::abort(std::string_view reason) {
  for (const auto& exchange : {exact_.get(), left_.get(), right_.get()}) {
    exchange->abort(reason);
  }
}

std::string PowerSGDExchange::name() const { return concat("PowerSGD of rank ", options_.rank, how(text_)); }

PowerSGDState PowerSGDExchange::state(std::size_t params) const {
  PowerSGDState out{.iteration = iteration_, .errors = {}, .factors = {}};
  out.errors.resize(params);
  out.factors.resize(params);
  for (const Bucket& bucket : buckets_) {
    for (const Matrix& matrix : bucket.matrices) {
      out.errors[matrix.piece.param] = matrix.error;
      out.factors[matrix.piece.param] = options_.warm_start ? matrix.factor : at::Tensor();
    }
  }
  return out;
}

void PowerSGDExchange::load_state(const PowerSGDState& state) {
  iteration_ = state.iteration;
  const auto take = [](const std::vector<at::Tensor>& all, const Matrix& matrix, at::IntArrayRef sizes) {
    const std::size_t at = matrix.piece.param;
    return at < all.size() && all[at].defined() && all[at].sizes() == sizes
               ? all[at].to(matrix.left.options(), false, true)
               : at::Tensor();
  };
  for (Bucket& bucket : buckets_) {
    for (Matrix& matrix : bucket.matrices) {
      const BucketPiece& piece = matrix.piece;
      matrix.error =
          options_.use_error_feedback ? take(state.errors, matrix, {piece.rows, piece.columns}) : at::Tensor();
      matrix.factor = take(state.factors, matrix, {piece.columns, matrix.rank});
    }
  }
}

}  // namespace danling::inline v0::detail
