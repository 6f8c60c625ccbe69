// GlobalMetrics over several processes.
#include <cstring>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/rank_reports.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* kSynchronize = "global_metrics.synchronize";

// Dtype and shape of rows without the first dimension; empty for a missing tensor.
using Form = std::vector<std::int64_t>;

Form form_of(const at::Tensor& tensor, std::int64_t first_dim) {
  Form form;
  if (tensor.defined()) {
    form.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    const auto sizes = tensor.sizes().slice(static_cast<std::size_t>(first_dim));
    form.insert(form.end(), sizes.begin(), sizes.end());
  }
  return form;
}

std::string form_text(const Form& form, bool rows) {
  const std::vector<std::int64_t> sizes(form.begin() + 1, form.end());
  std::string text = rows ? "*" : "";
  for (const std::int64_t size : sizes) {
    text += concat(text.empty() ? "" : ", ", size);
  }
  return concat(c10::toString(static_cast<at::ScalarType>(form.front())), " [", text, "]");
}

// Sent by each rank before anything else, so that all reach the same decisions and errors.
struct Report {
  std::string metrics;  // names, keys, and whether predictions are stored
  bool resend_all = false;
  std::int64_t rows = 0;
  std::int64_t last_rows = 0;
  std::int64_t n = 0;
  std::int64_t count = 0;
  std::vector<Form> forms;  // of predictions, targets, and the sums of each key

  std::string encode() const {
    std::vector<std::int64_t> numbers{
        resend_all ? 1 : 0, rows, last_rows, n, count, static_cast<std::int64_t>(forms.size())};
    for (const Form& form : forms) {
      numbers.push_back(static_cast<std::int64_t>(form.size()));
      numbers.insert(numbers.end(), form.begin(), form.end());
    }
    std::string bytes(numbers.size() * sizeof(std::int64_t), '\0');
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes + metrics;
  }

  static Report decode(const std::string& bytes) {
    std::size_t at = 0;
    const auto next = [&] {
      std::int64_t number = 0;
      check<MetricError>(at + sizeof(number) <= bytes.size(), kSynchronize,
                         "expected the report of a GlobalMetrics, got other bytes; do all ranks call the same?");
      std::memcpy(&number, bytes.data() + at, sizeof(number));
      at += sizeof(number);
      return number;
    };
    Report report;
    report.resend_all = next() != 0;
    report.rows = next();
    report.last_rows = next();
    report.n = next();
    report.count = next();
    for (std::int64_t forms = next(); forms > 0; --forms) {
      Form& form = report.forms.emplace_back();
      for (std::int64_t size = next(); size > 0; --size) {
        form.push_back(next());
      }
    }
    report.metrics = bytes.substr(at);
    return report;
  }
};

std::string metrics_text(const std::vector<MetricFunc>& metrics, const std::vector<RunningSumsPtr>& sums) {
  std::vector<std::string> names;
  for (const MetricFunc& metric : metrics) {
    names.push_back(metric.name);
  }
  std::vector<std::string> keys;
  for (const auto& which : sums) {
    keys.push_back(which->key);
  }
  return concat("[", join(names), "] of sums [", join(keys), "]");
}

// The common form of all ranks, by position; empty if no rank has any.
std::vector<Form> common_forms(const std::vector<Report>& reports, const std::vector<RunningSumsPtr>& sums) {
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    if (reports[rank].metrics != reports[0].metrics || reports[rank].forms.size() != reports[0].forms.size()) {
      fail<MetricError>(kSynchronize, "expected the same metrics on all ranks, got ", reports[0].metrics,
                        " on rank 0 and ", reports[rank].metrics, " on rank ", rank);
    }
  }
  std::vector<Form> common(reports[0].forms.size());
  std::vector<std::size_t> from(common.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    for (std::size_t i = 0; i < common.size(); ++i) {
      const Form& form = reports[rank].forms[i];
      if (form.empty() || form == common[i]) {
        continue;
      }
      if (!common[i].empty()) {
        const std::string what = i == 0 ? "predictions" : i == 1 ? "targets" : "sums " + quote(sums[i - 2]->key);
        fail<MetricError>(kSynchronize, "expected ", what, " of the same dtype and shape on all ranks, got ",
                          form_text(common[i], i < 2), " on rank ", from[i], " and ", form_text(form, i < 2),
                          " on rank ", rank);
      }
      common[i] = form;
      from[i] = rank;
    }
  }
  return common;
}

// The totals and the last batch's numbers of one key, together; zeros if this rank has none.
at::Tensor total_and_last(const at::Tensor& total, const at::Tensor& last, const Form& form) {
  if (total.defined()) {
    return at::stack({total, last.to(total.device())});
  }
  std::vector<std::int64_t> sizes(form.begin() + 1, form.end());
  sizes.insert(sizes.begin(), 2);
  return at::zeros(sizes, static_cast<at::ScalarType>(form.front()));
}

void combine_sums(const Group& group, const RunningSums& which, const Form& form, const at::Tensor& own_total,
                  const at::Tensor& own_last, at::Tensor& total, at::Tensor& last) {
  if (!which.merge) {
    at::Tensor both = total_and_last(own_total, own_last, form);
    group.all_reduce(both);
    total = both[0];
    last = both[1];
    return;
  }
  const at::Tensor own = own_total.defined() ? total_and_last(own_total, own_last, form).unsqueeze(0) : at::Tensor();
  for (const at::Tensor& of_rank : group.all_gather(own)) {
    if (of_rank.defined() && of_rank.size(0) > 0) {
      detail::merge_sums(which, total, of_rank[0][0]);
      detail::merge_sums(which, last, of_rank[0][1]);
    }
  }
}

at::Tensor no_rows(const Form& form, std::optional<at::Device> device) {
  if (form.empty()) {
    return {};
  }
  std::vector<std::int64_t> sizes(form.begin() + 1, form.end());
  sizes.insert(sizes.begin(), 0);
  return at::zeros(sizes,
                   at::TensorOptions(static_cast<at::ScalarType>(form.front())).device(device.value_or(at::kCPU)));
}

// Parts in the order of ranks, on the device of `own`, else of the first; `none` without parts.
at::Tensor join_ranks(std::vector<at::Tensor> parts, std::size_t own, const at::Tensor& none) {
  std::optional<at::Device> device;
  std::vector<at::Tensor> rows;
  if (parts[own].defined()) {
    device = parts[own].device();
  }
  for (const at::Tensor& part : parts) {
    if (part.defined()) {
      device = device.value_or(part.device());
      rows.push_back(part.to(*device));
    }
  }
  return rows.empty() ? none : rows.size() == 1 ? rows.front() : at::cat(rows);
}

}  // namespace

void GlobalMetrics::synchronize(const Group& group) {
  if (group.size() == 1) {
    return;
  }
  const c10::NoGradGuard no_grad;
  Impl& impl = *impl_;
  Impl::Local& local = impl.local;
  const auto size = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank());
  const bool other_group = impl.sent.empty() || !group.is(impl.sent_by);

  Report report;
  report.metrics = metrics_text(impl.metrics, impl.sums);
  report.resend_all = impl.resend_all || other_group;
  report.rows = local.preds.size();
  report.last_rows = local.last_rows;
  report.n = local.n.read();
  report.count = local.count.read();
  report.forms = {form_of(local.preds.like(), 1), form_of(local.targets.like(), 1)};
  for (const at::Tensor& total : local.totals) {
    report.forms.push_back(form_of(total, 0));
  }
  std::vector<Report> reports;
  for (const std::string& bytes : detail::exchange_reports(group, "global_metrics", report.encode())) {
    reports.push_back(Report::decode(bytes));
  }
  const std::vector<Form> forms = common_forms(reports, impl.sums);

  bool resend_all = false;
  for (const Report& of_rank : reports) {
    resend_all = resend_all || of_rank.resend_all;
  }
  // The ranks' data are valid again only if all of the following succeeds.
  impl.resend_all = true;
  impl.merged.reset();
  impl.average.reset();
  if (resend_all) {
    impl.sent.clear();
    impl.sent.resize(size);
    impl.own_rank = group.rank();
    impl.sent_by = group.identity();
  }
  bool any_rows = false;
  for (std::size_t rank = 0; rank < size; ++rank) {
    any_rows = any_rows || reports[rank].rows > impl.sent[rank].rows;
  }
  if (any_rows) {
    const std::int64_t begin = impl.sent[own].rows;
    const bool nothing = begin == report.rows;
    // One after the other, so that at most one is duplicated.
    for (const bool preds : {true, false}) {
      detail::RowStore& rows = preds ? local.preds : local.targets;
      const auto gathered = group.all_gather(nothing ? at::Tensor() : rows.slice(begin, report.rows));
      for (std::size_t rank = 0; rank < size; ++rank) {
        if (rank != own && gathered[rank].defined() && gathered[rank].size(0) > 0) {
          Impl::RankData& from = impl.sent[rank];
          (preds ? from.preds : from.targets).append(gathered[rank], impl.options.device);
        }
      }
    }
  }
  Impl::Merged merged;
  merged.no_preds = no_rows(forms[0], impl.options.device);
  merged.no_targets = no_rows(forms[1], impl.options.device);
  for (std::size_t rank = 0; rank < size; ++rank) {
    impl.sent[rank].rows = reports[rank].rows;
    impl.sent[rank].last_rows = reports[rank].last_rows;
    merged.n += reports[rank].n;
    merged.count += reports[rank].count;
  }
  merged.totals.resize(impl.sums.size());
  merged.last.resize(impl.sums.size());
  for (std::size_t i = 0; i < impl.sums.size(); ++i) {
    if (!forms[i + 2].empty()) {
      combine_sums(group, *impl.sums[i], forms[i + 2], local.totals[i], local.last[i], merged.totals[i],
                   merged.last[i]);
    }
  }
  impl.merged = std::move(merged);
  impl.resend_all = false;
}

detail::MetricData GlobalMetrics::Impl::all_data() {
  if (!merged) {
    return {local.preds.all(), local.targets.all(), local.totals};
  }
  std::vector<at::Tensor> preds;
  std::vector<at::Tensor> targets;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const bool own = static_cast<int>(rank) == own_rank;
    preds.push_back((own ? local.preds : sent[rank].preds).all());
    targets.push_back((own ? local.targets : sent[rank].targets).all());
  }
  const auto own = static_cast<std::size_t>(own_rank);
  return {join_ranks(std::move(preds), own, merged->no_preds), join_ranks(std::move(targets), own, merged->no_targets),
          merged->totals};
}

detail::MetricData GlobalMetrics::Impl::last_data() {
  if (!merged) {
    return own_last_data();
  }
  std::vector<at::Tensor> preds;
  std::vector<at::Tensor> targets;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const bool own = static_cast<int>(rank) == own_rank;
    const std::int64_t end = sent[rank].rows;
    const std::int64_t begin = end - sent[rank].last_rows;
    preds.push_back((own ? local.preds : sent[rank].preds).slice(begin, end));
    targets.push_back((own ? local.targets : sent[rank].targets).slice(begin, end));
  }
  const auto own = static_cast<std::size_t>(own_rank);
  return {join_ranks(std::move(preds), own, merged->no_preds), join_ranks(std::move(targets), own, merged->no_targets),
          merged->last};
}

}  // namespace danling::inline v0
