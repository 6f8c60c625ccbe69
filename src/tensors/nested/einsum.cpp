// einsum of nested tensors: on the packed values if each token is independent, else per element.
#include <ATen/ops/einsum.h>

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/stack.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

class Einsum {
 public:
  Einsum(Call& call, std::string equation, std::vector<at::Tensor> operands)
      : call_(call), operands_(std::move(operands)) {
    equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
    equation = without_ellipsis(equation);
    const std::size_t arrow = equation.find("->");
    const std::string left = equation.substr(0, arrow);
    for (std::size_t begin = 0; begin <= left.size();) {
      const std::size_t end = std::min(left.find(',', begin), left.size());
      terms_.push_back(left.substr(begin, end - begin));
      begin = end + 1;
    }
    call.expect(terms_.size() == operands_.size(), "expected ", terms_.size(), " operands for ", equation, ", got ",
                operands_.size());
    out_ = arrow == std::string::npos ? implied_output() : equation.substr(arrow + 2);
    for (std::size_t at = 0; at < terms_.size(); ++at) {
      const at::Tensor& operand = operands_[at];
      call.expect(static_cast<std::int64_t>(terms_[at].size()) == operand.dim(), "expected a letter for each of ",
                  operand.dim(), " dimensions, got ", terms_[at]);
      if (const NestedTensorImpl* impl = nested(operand)) {
        read_letters(terms_[at], *impl);
      }
    }
    for (std::size_t at = 0; at < terms_.size(); ++at) {
      for (const char letter : terms_[at]) {
        call.expect(nested(operands_[at]) != nullptr || !is_ragged(letter),
                    "expected NestedTensors as all operands with the ragged letter ", std::string(1, letter), " of ",
                    equation, ", got a tensor of shape (", join(operands_[at].sizes()), ")");
      }
    }
  }

  at::Tensor compute() { return is_per_row() ? compute_packed() : compute_per_element(); }

 private:
  /// Replaces an ellipsis with new letters for its dimensions, aligned at the right as in LibTorch.
  std::string without_ellipsis(std::string equation) const {
    static const std::string dots = "...";
    if (equation.find(dots) == std::string::npos) {
      return equation;
    }
    std::string unused;
    for (char letter = 'A'; letter <= 'z'; letter = letter == 'Z' ? 'a' : static_cast<char>(letter + 1)) {
      unused += equation.find(letter) == std::string::npos ? std::string(1, letter) : "";
    }
    const std::size_t arrow = equation.find("->");
    std::string out;
    std::vector<std::string> terms;
    std::size_t widest = 0, operand = 0;
    for (std::size_t begin = 0; begin <= std::min(arrow, equation.size()); ++operand) {
      const std::size_t end = std::min({equation.find(',', begin), arrow, equation.size()});
      terms.push_back(equation.substr(begin, end - begin));
      const auto named = static_cast<std::int64_t>(terms.back().size()) - 3;
      const bool has_dots = terms.back().find(dots) != std::string::npos && operand < operands_.size();
      call_.expect(!has_dots || named <= operands_[operand].dim(), "expected a letter for each dimension at most, got ",
                   terms.back());
      widest = has_dots ? std::max(widest, static_cast<std::size_t>(operands_[operand].dim() - named)) : widest;
      begin = end + 1;
    }
    call_.expect(terms.size() == operands_.size() && widest <= unused.size(), "expected ", terms.size(),
                 " operands for ", equation, ", got ", operands_.size());
    const std::string letters = unused.substr(0, widest);
    for (std::size_t at = 0; at < terms.size(); ++at) {
      const std::size_t found = terms[at].find(dots);
      if (found != std::string::npos) {
        const auto own = static_cast<std::size_t>(operands_[at].dim()) - (terms[at].size() - 3);
        terms[at].replace(found, 3, letters.substr(widest - own));
      }
      out += (at == 0 ? "" : ",") + terms[at];
    }
    std::string result;
    if (arrow != std::string::npos) {
      result = equation.substr(arrow + 2);
      const std::size_t found = result.find(dots);
      found == std::string::npos ? result : result.replace(found, 3, letters);
    } else {  // the ellipsis, then letters that occur once
      std::string sorted = equation.substr(0, arrow);
      std::sort(sorted.begin(), sorted.end());
      result = letters;
      std::copy_if(sorted.begin(), sorted.end(), std::back_inserter(result), [&](char letter) {
        return letter != ',' && letter != '.' && std::count(sorted.begin(), sorted.end(), letter) == 1;
      });
    }
    return out + "->" + result;
  }
  std::string implied_output() const {
    std::string all, out;
    for (const std::string& term : terms_) {
      all += term;
    }
    std::sort(all.begin(), all.end());
    std::copy_if(all.begin(), all.end(), std::back_inserter(out),
                 [&](char letter) { return std::count(all.begin(), all.end(), letter) == 1; });
    return out;
  }

  void read_letters(const std::string& term, const NestedTensorImpl& impl) {
    const Structure& structure = impl.structure();
    const std::int64_t rank = impl.element_rank();
    const char batch = term[static_cast<std::size_t>(structure.batch_dim(rank))];
    call_.expect(batch_ == 0 || batch_ == batch, "expected one letter for the batch of all NestedTensors, got ",
                 std::string(1, batch_), " and ", std::string(1, batch));
    call_.expect(like_ == nullptr || like_->structure().batch() == structure.batch(), "expected as many elements, got ",
                 text_of_shapes(impl), like_ == nullptr ? "" : " and ", ShapesText(like_));
    batch_ = batch;
    like_ = like_ == nullptr ? &impl : like_;
    for (const std::int64_t dim : structure.ragged_dims) {
      const char letter = term[static_cast<std::size_t>(structure.tensor_dim(dim, rank))];
      if (!is_ragged(letter)) {
        ragged_.push_back(letter);
      }
    }
  }
  bool is_ragged(char letter) const { return ragged_.find(letter) != std::string::npos; }
  std::string ragged_of(const std::string& term) const {
    std::string out;
    std::copy_if(term.begin(), term.end(), std::back_inserter(out), [&](char one) { return is_ragged(one); });
    return out;
  }

  /// True if batch and ragged letters can be merged: all NestedTensors share them, and the result has all or none.
  bool is_per_row() const {
    const bool has_batch = out_.find(batch_) != std::string::npos;
    if (has_batch ? ragged_of(out_) != ragged_ || out_.find(batch_) > 1 : !ragged_of(out_).empty()) {
      return false;
    }
    for (std::size_t at = 0; at < terms_.size(); ++at) {
      const NestedTensorImpl* impl = nested(operands_[at]);
      if (impl == nullptr
              ? terms_[at].find(batch_) != std::string::npos
              : !same(impl->structure().ragged, like_->structure().ragged) || ragged_of(terms_[at]) != ragged_) {
        return false;
      }
    }
    return true;
  }
  std::string with_rows(const std::string& term) const {
    std::string out(1, batch_);
    std::copy_if(term.begin(), term.end(), std::back_inserter(out),
                 [&](char letter) { return letter != batch_ && !is_ragged(letter); });
    return out;
  }
  c10::DimVector ragged_dims_of_result(const std::string& without_batch) const {
    c10::DimVector out;
    for (std::size_t at = 0; at < without_batch.size(); ++at) {
      if (is_ragged(without_batch[at])) {
        out.push_back(static_cast<std::int64_t>(at));
      }
    }
    return out;
  }
  std::string without_batch(std::string term) const {
    term.erase(std::remove(term.begin(), term.end(), batch_), term.end());
    return term;
  }
  std::string equation_of(const std::vector<std::string>& terms, const std::string& out) const {
    std::string equation;
    for (const std::string& term : terms) {
      equation += (equation.empty() && &term == terms.data() ? "" : ",") + term;
    }
    return equation + "->" + out;
  }

  at::Tensor compute_packed() {
    std::vector<std::string> terms;
    std::vector<at::Tensor> values;
    for (std::size_t at = 0; at < terms_.size(); ++at) {
      const bool is_nested = nested(operands_[at]) != nullptr;
      terms.push_back(is_nested ? with_rows(terms_[at]) : terms_[at]);
      values.push_back(is_nested ? values_of(operands_[at]) : operands_[at]);
    }
    if (out_.find(batch_) == std::string::npos) {
      return at::einsum(equation_of(terms, out_), values);
    }
    Structure structure = like_->structure();
    structure.batch_first = out_.find(batch_) == 0;
    structure.ragged_dims = ragged_dims_of_result(without_batch(out_));
    return wrap(at::einsum(equation_of(terms, with_rows(out_)), values), std::move(structure));
  }

  at::Tensor compute_per_element() {
    const std::string out = without_batch(out_);
    const bool has_batch = out.size() != out_.size(), has_ragged = !ragged_of(out).empty();
    const std::int64_t batch = like_->structure().batch();
    call_.expect(has_batch || !has_ragged, "expected the batch's letter ", std::string(1, batch_),
                 " in a result with ragged ones, got ", out_);
    call_.expect(!has_batch || out_.find(batch_) <= (has_ragged ? 1 : 0), "expected the batch in front, got ", out_);
    call_.expect(batch > 0, "expected at least one element to compute ", out_, ", got none");
    std::vector<std::string> terms;
    std::vector<std::vector<at::Tensor>> parts;
    for (std::size_t at = 0; at < terms_.size(); ++at) {
      terms.push_back(without_batch(terms_[at]));
      if (nested(operands_[at]) != nullptr) {
        parts.push_back(elements_of(operands_[at]));
      } else if (const std::size_t dim = terms_[at].find(batch_); dim != std::string::npos) {
        call_.expect(operands_[at].size(static_cast<std::int64_t>(dim)) == batch, "expected a batch of ", batch,
                     " elements, got a tensor of shape (", join(operands_[at].sizes()), ")");
        parts.push_back(operands_[at].unbind(static_cast<std::int64_t>(dim)));
      } else {
        parts.emplace_back(static_cast<std::size_t>(batch), operands_[at]);
      }
    }
    const std::string equation = equation_of(terms, out);
    std::vector<at::Tensor> results;
    for (std::size_t element = 0; element < static_cast<std::size_t>(batch); ++element) {
      std::vector<at::Tensor> own;
      for (const auto& part : parts) {
        own.push_back(part[element]);
      }
      results.push_back(at::einsum(equation, own));
    }
    if (!has_ragged) {
      const at::Tensor all = at::stack(results);
      return has_batch ? all : all.sum(0);
    }
    Structure structure = like_->structure();
    structure.batch_first = out_.find(batch_) == 0;
    return nest(results, structure, ragged_dims_of_result(out));
  }

  Call& call_;
  std::vector<at::Tensor> operands_;
  std::vector<std::string> terms_;
  std::string out_, ragged_;
  char batch_ = 0;
  const NestedTensorImpl* like_ = nullptr;
};

void call_einsum(Call& call) {
  call.finish(Einsum(call, call["equation"].toStringRef(), call.tensors("tensors")).compute());
}

}  // namespace

void add_einsum(OperatorTable& table) { table.add(Way::offsets, call_einsum, {"einsum"}); }

}  // namespace danling::inline v0::detail
