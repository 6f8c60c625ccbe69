// Adafactor: second moments of matrices factored into one number per row and column.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>
#include <danling/optim/layerwise.hpp>

#include <optim/layers.hpp>

namespace danling::inline v0::optim {
namespace {

using detail::Layer;
using detail::LayerUpdate;

double least_step_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::epsilon();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

class AdafactorRule final : public detail::LayerRule {
 public:
  const detail::KnownOptions& options() const override {
    static const detail::KnownOptions known{"Adafactor", Adafactor::defaults(), {"eps"}};
    return known;
  }
  void validate(const OptimizerOptions& options) const override {
    detail::expect_not_negative("Adafactor", "eps", options.eps.value_or(0));
    detail::expect_not_negative("Adafactor", "eps2", *options.eps2);
    check<ConfigError>(*options.beta2_decay <= 0, "Adafactor.options", "expected beta2_decay to be 0 or less, got ",
                       *options.beta2_decay);
    check<ConfigError>(*options.d >= 1 && std::isfinite(*options.d), "Adafactor.options",
                       "expected d to be 1 or more, got ", *options.d);
  }
  std::vector<detail::NamedState> layout(const at::Tensor& param) const override {
    std::vector<std::int64_t> sizes = param.sizes().vec();
    if (sizes.size() < 2) {
      return {{"variance", sizes}};
    }
    std::vector<std::int64_t> rows = sizes;
    rows.back() = 1;
    sizes[sizes.size() - 2] = 1;
    return {{"row_var", std::move(rows)}, {"col_var", std::move(sizes)}};
  }

  void update(const OptimizerOptions& options, const LayerUpdate& item, bool parallel) const override {
    if (item.layer->param.numel() == 0) {
      return;
    }
    const bool wide = item.param_type() == rules::Type::float64;
    wide ? Update<double>(options, item, parallel).run() : Update<float>(options, item, parallel).run();
  }

  void update(const OptimizerOptions& options, detail::LayerTensors& layer, at::ScalarType dtype) const override {
    const std::int64_t count = layer.param.numel();
    if (count == 0) {
      return;
    }
    const at::Tensor grad = *options.maximize ? layer.grad.neg() : layer.grad;
    const double eps1 = options.eps.value_or(least_step_of(dtype));
    const double root = std::sqrt(static_cast<double>(count));
    const at::Tensor weight = layer.count.pow(*options.beta2_decay);
    const at::Tensor rate = layer.count.rsqrt().clamp_max_(*options.lr);
    // As Python's max() of a limit and NaN, which is the limit: one NaN does not reach the other elements.
    const auto at_least = [](double limit, const at::Tensor& number) {
      return at::where(number.gt(limit), number, limit);
    };
    const at::Tensor alpha = at_least(*options.eps2, at::linalg_vector_norm(layer.param).div_(root)).mul_(rate);
    const auto follow = [&](at::Tensor& moment, const at::Tensor& square) {
      moment = square.sub(moment).mul_(weight).add_(moment);
    };
    at::Tensor variance;
    if (grad.dim() > 1) {
      const auto mean_square = [&](std::int64_t dim) {
        return at::linalg_vector_norm(grad, 2, dim, /*keepdim=*/true).square_().div_(grad.size(dim));
      };
      follow(layer.state[0], mean_square(-1));
      follow(layer.state[1], mean_square(-2));
      variance = at::matmul(layer.state[0], layer.state[1]);
      variance.div_(layer.state[0].mean(-2, /*keepdim=*/true).clamp_min_(eps1));
    } else {
      follow(layer.state[0], grad.square());
      variance = layer.state[0].clone();
    }
    const at::Tensor update = variance.clamp_min_(eps1 * eps1).rsqrt_().mul_(grad);
    const at::Tensor length = at_least(1, at::linalg_vector_norm(update).div_(root * *options.d));
    layer.param = layer.param.mul(1 - *options.lr * *options.weight_decay).sub_(update.mul_(alpha.div(length)));
  }

  State::Map write(const OptimizerOptions& options) const override {
    return {{"lr", *options.lr},
            {"beta2_decay", *options.beta2_decay},
            {"eps", State::Tuple{{options.eps ? State(*options.eps) : State(), *options.eps2}}},
            {"d", *options.d},
            {"weight_decay", *options.weight_decay},
            {"foreach", nullptr},
            {"maximize", *options.maximize}};
  }
  std::vector<std::string_view> saved_keys() const override { return {"beta2_decay", "eps", "d", "maximize"}; }
  void read(const detail::Target& target, const detail::SavedGroup& group, OptimizerOptions& options) const override {
    options.beta2_decay = detail::read_number(target, group, "beta2_decay", *options.beta2_decay);
    options.d = detail::read_number(target, group, "d", *options.d);
    options.maximize = detail::read_flag(target, group, "maximize", false);
    const State& eps = group.options->at("eps");
    const bool pair = (eps.is_tuple() || eps.is_list()) && eps.items().size() == 2;
    const auto is_number = [](const State& value) { return value.is_double() || value.is_integer(); };
    check<StateError>(pair && (eps.items()[0].is_null() || is_number(eps.items()[0])) && is_number(eps.items()[1]),
                      target.where, "expected two numbers for eps, the first of which may be null, got ", eps.kind());
    options.eps.reset();
    if (!eps.items()[0].is_null()) {
      options.eps = eps.items()[0].number();
    }
    options.eps2 = eps.items()[1].number();
  }

 private:
  /// One update of one parameter: as matrices of its last two dimensions, or as one row.
  template <class T>
  class Update {
   public:
    Update(const OptimizerOptions& options, const LayerUpdate& item, bool parallel)
        : options_(options), layer_(*item.layer), parallel_(parallel) {
      const auto sizes = layer_.param.sizes();
      const bool factored = sizes.size() > 1;
      rows_ = factored ? sizes[sizes.size() - 2] : 1;
      columns_ = factored ? sizes[sizes.size() - 1] : layer_.param.numel();
      const auto step = layer_.count;
      weight_ = std::pow(step, *options.beta2_decay);
      rate_ = std::min(*options.lr, 1 / std::sqrt(step));
      scale_ = (*options.maximize ? -1 : 1) / item.divisor;
      eps1_ = options.eps.value_or(least_step_of(layer_.master.defined() ? at::kFloat : layer_.param.scalar_type()));
      whole_ = {.param = layer_.param.mutable_data_ptr(),
                .grad = item.grad.const_data_ptr(),
                .master = item.master(),
                .rows = rows_,
                .columns = columns_,
                .first = 0,
                .rounding = item.rounding,
                .param_type = item.param_type(),
                .grad_type = item.grad_type()};
      // A part is as many rows as fit in part_size; a long row is split into pieces.
      rows_of_part_ = std::max<std::int64_t>(detail::part_size / std::max<std::int64_t>(columns_, 1), 1);
    }

    void run() {
      const bool factored = layer_.state.size() == 2;
      const std::int64_t matrices = layer_.param.numel() / (rows_ * columns_);
      for (auto& state : layer_.state) {
        numbers_.push_back(state.to(c10::CppTypeToScalarType<T>::value));
      }
      column_factors_.resize(static_cast<std::size_t>(columns_ * matrices));
      row_factors_.assign(static_cast<std::size_t>(rows_ * matrices), T(1));
      for (std::int64_t m = 0; m < matrices; ++m) {
        factored ? sum_matrix(m) : sum_vector();
      }
      const auto count = static_cast<double>(layer_.param.numel());
      const double most = 1 / eps1_;
      double squares = 0;
      for (std::int64_t m = 0; m < matrices; ++m) {
        squares += sum_parts(
            [&](const Part& part) {
              return kernels_.adafactor_squares(part.matrix, part.row_factors, part.column_factors, most);
            },
            m);
      }
      const double alpha = std::max(*options_.eps2, std::sqrt(param_squares_ / count)) * rate_;
      const double length = std::max(1.0, std::sqrt(squares / count) * std::abs(scale_) / *options_.d);
      const double keep = 1 - *options_.lr * *options_.weight_decay;
      for (std::int64_t m = 0; m < matrices; ++m) {
        sum_parts(
            [&](const Part& part) {
              kernels_.adafactor_step(part.matrix, part.row_factors, part.column_factors, most, keep,
                                      alpha / length * scale_);
              return 0.0;
            },
            m);
      }
      for (std::size_t i = 0; i < numbers_.size(); ++i) {
        if (!numbers_[i].is_same(layer_.state[i])) {
          layer_.state[i].copy_(numbers_[i]);
        }
      }
    }

   private:
    struct Part {
      rules::Matrix matrix;
      const T* row_factors;
      const T* column_factors;
      std::int64_t row;  ///< the first
    };

    /// Row vectors are also split, into pieces treated as matrices of one row.
    std::int64_t part_count() const {
      return rows_ == 1 ? (columns_ + detail::part_size - 1) / detail::part_size
                        : (rows_ + rows_of_part_ - 1) / rows_of_part_;
    }

    Part part(std::int64_t m, std::int64_t i) const {
      Part out{whole_, row_factors(m), column_factors(m), 0};
      std::int64_t begin = m * rows_ * columns_;
      if (rows_ == 1) {
        const std::int64_t column = i * detail::part_size;
        out.matrix.columns = std::min(detail::part_size, columns_ - column);
        out.column_factors += column;
        begin += column;
      } else {
        out.row = i * rows_of_part_;
        out.matrix.rows = std::min(rows_of_part_, rows_ - out.row);
        out.row_factors += out.row;
        begin += out.row * columns_;
      }
      const auto bytes = [&](rules::Type type) { return begin * static_cast<std::int64_t>(rules::size_of(type)); };
      out.matrix.param = static_cast<char*>(whole_.param) + bytes(whole_.param_type);
      out.matrix.grad = static_cast<const char*>(whole_.grad) + bytes(whole_.grad_type);
      out.matrix.first = begin;
      out.matrix.master = whole_.master == nullptr ? nullptr : whole_.master + begin;
      return out;
    }

    /// The product of row and column factors is 1 / sqrt(second moment).
    const T* row_factors(std::int64_t m) const { return row_factors_.data() + m * rows_; }
    const T* column_factors(std::int64_t m) const { return column_factors_.data() + m * columns_; }

    template <class Work>
    double sum_parts(const Work& work, std::int64_t m) {
      std::vector<double> sums(static_cast<std::size_t>(part_count()));
      detail::for_parts(part_count(), parallel_,
                        [&](std::int64_t i) { sums[static_cast<std::size_t>(i)] = work(part(m, i)); });
      double sum = 0;
      for (const double value : sums) {
        sum += value;
      }
      return sum;
    }

    static T moved(T from, double to, double weight) {
      return weight < 0.5 ? from + static_cast<T>(weight) * (static_cast<T>(to) - from)
                          : static_cast<T>(to) - (static_cast<T>(to) - from) * static_cast<T>(1 - weight);
    }

    /// Second moments of a matrix, and its contribution to the parameter's norm.
    void sum_matrix(std::int64_t m) {
      const std::int64_t parts = part_count();
      std::vector<double> row_sums(static_cast<std::size_t>(std::max(rows_, parts)));
      std::vector<T> column_sums(static_cast<std::size_t>(rows_ == 1 ? columns_ : parts * columns_));
      param_squares_ += sum_parts(
          [&](const Part& p) {
            double squares = 0;
            const std::int64_t i =
                rows_ == 1 ? (p.matrix.first - m * columns_) / detail::part_size : p.row / rows_of_part_;
            T* sums = column_sums.data() + (rows_ == 1 ? i * detail::part_size : i * columns_);
            kernels_.adafactor_sums(p.matrix, row_sums.data() + (rows_ == 1 ? i : p.row), sums, &squares);
            return squares;
          },
          m);
      T* rows = numbers_[0].template mutable_data_ptr<T>() + m * rows_;
      T* columns = numbers_[1].template mutable_data_ptr<T>() + m * columns_;
      if (rows_ == 1) {
        for (std::size_t i = 1; i < static_cast<std::size_t>(parts); ++i) {
          row_sums[0] += row_sums[i];
        }
      }
      const double square_scale = scale_ * scale_;
      double mean = 0;
      for (std::int64_t row = 0; row < rows_; ++row) {
        const double square = row_sums[static_cast<std::size_t>(row)] * square_scale / static_cast<double>(columns_);
        rows[row] = moved(rows[row], square, weight_);
        mean += static_cast<double>(rows[row]);
        row_factors_[static_cast<std::size_t>(m * rows_ + row)] = 1 / std::sqrt(rows[row]);
      }
      mean = std::max(mean / static_cast<double>(rows_), eps1_);
      for (std::int64_t column = 0; column < columns_; ++column) {
        double square = 0;
        for (std::int64_t i = 0; i < (rows_ == 1 ? 1 : parts); ++i) {
          square += static_cast<double>(column_sums[static_cast<std::size_t>(i * columns_ + column)]);
        }
        columns[column] = moved(columns[column], square * square_scale / static_cast<double>(rows_), weight_);
        column_factors_[static_cast<std::size_t>(m * columns_ + column)] =
            1 / std::sqrt(columns[column] / static_cast<T>(mean));
      }
    }

    void sum_vector() {
      T* variance = numbers_[0].template mutable_data_ptr<T>();
      param_squares_ += sum_parts(
          [&](const Part& p) {
            double sum = 0;
            double unused = 0;
            T* squares = column_factors_.data() + p.matrix.first;
            kernels_.adafactor_sums(p.matrix, &unused, squares, &sum);
            for (std::int64_t i = 0; i < p.matrix.columns; ++i) {
              T& element = variance[p.matrix.first + i];
              element = moved(element, static_cast<double>(squares[i]) * scale_ * scale_, weight_);
              squares[i] = 1 / std::sqrt(element);
            }
            return sum;
          },
          0);
    }

    const OptimizerOptions& options_;
    Layer& layer_;
    bool parallel_;
    const rules::LayerwiseKernels<T>& kernels_ = rules::layerwise().of<T>();
    rules::Matrix whole_ = {};
    std::int64_t rows_ = 1, columns_ = 1, rows_of_part_ = 1;
    double weight_ = 0, rate_ = 0, eps1_ = 0, param_squares_ = 0;
    double scale_ = 1;                      // of the gradient
    std::vector<at::Tensor> numbers_ = {};  // the state as T
    std::vector<T> row_factors_ = {}, column_factors_ = {};
  };
};

}  // namespace

const OptimizerOptions& Adafactor::defaults() {
  static const OptimizerOptions defaults{.lr = 1e-2,
                                         .weight_decay = 0.0,
                                         .maximize = false,
                                         .fused = true,
                                         .master_weights = false,
                                         .stochastic_rounding = false,
                                         .beta2_decay = -0.8,
                                         .eps2 = 1e-3,
                                         .d = 1.0};
  return defaults;
}

const detail::LayerRule& detail::adafactor_rule() {
  static const AdafactorRule rule;
  return rule;
}

}  // namespace danling::inline v0::optim
