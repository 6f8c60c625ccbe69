// GlobalMetrics over several processes.
#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>
#include <metrics/global_metrics_impl.hpp>
#include <metrics/rank_reports.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* synchronize_where = "global_metrics.synchronize";

// Dtype and shape of rows without the first dimension; empty for an undefined tensor.
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

void check_batches(bool right) {
  check<MetricError>(right, synchronize_where, "expected the batches of a rank, got other numbers");
}

// Each rank sends it first, so that all ranks reach the same decisions and errors.
struct Report {
  std::string metrics;  // names, keys, and whether predictions are stored
  bool resend_all = false;
  std::int64_t last_index = -1;
  std::int64_t last_rows = 0;
  std::int64_t n = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> parts;  // of the sums, by key
  std::vector<Form> forms;          // of predictions, targets, and the sums by key
  detail::BatchRows batches;        // since the last call, or all if data are sent again

  std::string encode() const {
    detail::Packer packer;
    packer.text(metrics);
    for (const std::int64_t number : {std::int64_t{resend_all}, last_index, last_rows, n, count}) {
      packer.number(number);
    }
    packer.numbers(parts);
    packer.numbers(batches.numbers());
    for (const Form& form : forms) {
      packer.numbers(form);
    }
    return packer.take();
  }

  static Report decode(const std::string& bytes) {
    detail::Unpacker unpacker(bytes);
    Report report;
    report.metrics = unpacker.text();
    report.resend_all = unpacker.number() != 0;
    for (std::int64_t* number : {&report.last_index, &report.last_rows, &report.n, &report.count}) {
      *number = unpacker.number();
    }
    report.parts = unpacker.numbers();
    check_batches(report.batches.read(unpacker.numbers()));
    while (!unpacker.done()) {
      report.forms.push_back(unpacker.numbers());
    }
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

// The common form over all ranks, by position; empty if no rank has data.
std::vector<Form> common_forms(const std::vector<Report>& reports, const std::vector<RunningSumsPtr>& sums) {
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    if (reports[rank].metrics != reports[0].metrics || reports[rank].forms.size() != reports[0].forms.size()) {
      fail<MetricError>(synchronize_where, "expected the same metrics on all ranks, got ", reports[0].metrics,
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
        fail<MetricError>(synchronize_where, "expected ", what, " of the same dtype and shape on all ranks, got ",
                          form_text(common[i], i < 2), " on rank ", from[i], " and ", form_text(form, i < 2),
                          " on rank ", rank);
      }
      common[i] = form;
      from[i] = rank;
    }
  }
  return common;
}

// Stacks the parts that have data, first those of all batches, then of the last batch; undefined without any.
at::Tensor stacked(const detail::PartSums& totals, const detail::PartSums& last) {
  std::vector<at::Tensor> rows;
  for (const detail::PartSums* parts : {&totals, &last}) {
    for (const at::Tensor& part : *parts) {
      if (part.defined()) {
        rows.push_back(rows.empty() ? part : part.to(rows.front().device()));
      }
    }
  }
  return rows.empty() ? at::Tensor() : at::stack(rows);
}

// Exact integers, which are independent of the order.
at::Tensor sum_over_ranks(const Group& group, const Form& form, const at::Tensor& own_total,
                          const at::Tensor& own_last) {
  std::vector<std::int64_t> sizes(form.begin() + 1, form.end());
  const at::Tensor none = at::zeros(sizes, static_cast<at::ScalarType>(form.front()));
  const at::Tensor total = own_total.defined() ? own_total : none;
  at::Tensor both = at::stack({total, (own_last.defined() ? own_last : none).to(total.device())});
  group.all_reduce(both);
  return both;
}

// Joins the parts of all ranks in rank order: `totals` of each rank, then those of the last batch.
void combine_parts(const Group& group, const RunningSums& which, const at::Tensor& own,
                   const std::vector<std::int64_t>& totals, at::Tensor& total, at::Tensor& last) {
  const std::vector<at::Tensor> ranks = group.all_gather(own);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::int64_t part = 0; ranks[rank].defined() && part < ranks[rank].size(0); ++part) {
      detail::merge_sums(which, part < totals[rank] ? total : last, ranks[rank][part]);
    }
  }
}

// Gathers the batches of all ranks.
std::vector<detail::BatchRows> all_batches(const Group& group, const detail::BatchRows& own) {
  detail::Packer packer;
  packer.numbers(own.numbers());
  std::vector<detail::BatchRows> out;
  for (const std::string& bytes : group.all_gather(packer.take())) {
    check_batches(out.emplace_back().read(detail::Unpacker(bytes).numbers()));
  }
  return out;
}

std::int64_t number_of_parts(const detail::PartSums& parts) {
  return std::count_if(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
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

// Adds the rows of all ranks after the stored rows, in order.
void add_rows(detail::RowStore& store, const std::vector<at::Tensor>& gathered,
              const std::vector<detail::RowPiece>& pieces, std::optional<at::Device> device) {
  const std::size_t stored = gathered.size();
  auto piece = pieces.begin();
  detail::RowStore ordered;
  const bool all_first = piece != pieces.end() && piece->source == stored && piece->rows == store.size();
  const bool at_end = all_first || store.size() == 0;
  piece += all_first ? 1 : 0;
  detail::RowStore& to = at_end ? store : ordered;
  for (; piece != pieces.end(); ++piece) {
    to.append(piece->source == stored ? store.slice(piece->begin, piece->begin + piece->rows)
                                      : gathered[piece->source].narrow(0, piece->begin, piece->rows),
              device);
  }
  if (!at_end) {
    store = std::move(ordered);
  }
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
  const bool other_group = impl.sent.batches.empty() || !group.is(impl.sent_by);

  Report report;
  report.metrics = metrics_text(impl.metrics, impl.sums);
  report.resend_all = impl.resend_all || other_group;
  report.last_index = local.last_index;
  report.last_rows = local.last_rows;
  report.n = local.n.read();
  report.count = local.count.read();
  report.batches = report.resend_all ? detail::BatchRows() : local.batches.after(impl.sent_index);
  report.forms = {form_of(local.preds.like(), 1), form_of(local.targets.like(), 1)};
  for (std::size_t i = 0; i < impl.sums.size(); ++i) {
    report.forms.push_back(form_of(detail::first_defined(local.totals[i]), 0));
    report.parts.push_back(number_of_parts(local.totals[i]));
  }
  std::vector<Report> reports;
  bool resend_all = false;
  std::int64_t last_index = -1;
  for (const std::string& bytes : detail::exchange_reports(group, "global_metrics", report.encode())) {
    const Report& of_rank = reports.emplace_back(Report::decode(bytes));
    resend_all = resend_all || of_rank.resend_all;
    last_index = std::max(last_index, of_rank.last_index);
  }
  const std::vector<Form> forms = common_forms(reports, impl.sums);

  // If a later step fails, the ranks' data stay invalid.
  impl.resend_all = true;
  impl.merged.reset();
  impl.average.reset();
  if (resend_all) {
    impl.sent = {};
    impl.sent.batches.resize(size);
    impl.sent_index = -2;
    impl.sent_by = group.identity();
  }
  if (impl.keeps) {
    std::vector<detail::BatchRows> added;
    for (Report& of_rank : reports) {
      added.push_back(std::move(of_rank.batches));
    }
    impl.gather_rows(group, resend_all ? all_batches(group, local.batches) : std::move(added));
  }
  Impl::Merged merged;
  merged.no_preds = no_rows(forms[0], impl.options.device);
  merged.no_targets = no_rows(forms[1], impl.options.device);
  for (const Report& of_rank : reports) {
    merged.count += of_rank.count;
    if (of_rank.last_index == last_index) {
      merged.n += of_rank.n;
      merged.last_rows += of_rank.last_rows;
    }
  }
  for (std::size_t i = 0; i < impl.sums.size(); ++i) {
    static const detail::PartSums none;
    const detail::PartSums& last = local.last_index == last_index ? local.last[i] : none;
    std::vector<std::int64_t> parts;  // of all batches, by rank
    for (const Report& of_rank : reports) {
      parts.push_back(of_rank.parts[i]);
    }
    at::Tensor& total = merged.totals.emplace_back();
    at::Tensor& of_last = merged.last.emplace_back();
    const Form& form = forms[i + 2];
    if (!form.empty() && detail::is_exact(*impl.sums[i], static_cast<at::ScalarType>(form.front()))) {
      const at::Tensor both =
          sum_over_ranks(group, form, detail::first_defined(local.totals[i]), detail::first_defined(last));
      total = both[0];
      of_last = both[1];
    } else if (!form.empty()) {
      combine_parts(group, *impl.sums[i], stacked(local.totals[i], last), parts, total, of_last);
    }
  }
  impl.merged = std::move(merged);
  impl.resend_all = false;
}

// Gathers the rows of all ranks' `added` batches.
void GlobalMetrics::Impl::gather_rows(const Group& group, const std::vector<detail::BatchRows>& added) {
  const std::vector<detail::RowPiece> pieces = detail::in_order(sent.batches, added);
  const auto own = static_cast<std::size_t>(group.rank());
  std::int64_t new_rows = 0;
  for (const detail::BatchRows& batches : added) {
    new_rows += batches.rows();
  }
  const std::int64_t rows = added[own].rows();
  if (new_rows > 0) {
    // One at a time, so that at most one is duplicated.
    for (const bool preds : {true, false}) {
      detail::RowStore& from = preds ? local.preds : local.targets;
      const auto gathered = group.all_gather(rows == 0 ? at::Tensor() : from.slice(from.size() - rows, from.size()));
      add_rows(preds ? sent.preds : sent.targets, gathered, pieces, options.device);
    }
  }
  for (std::size_t rank = 0; rank < added.size(); ++rank) {
    sent.batches[rank].append(added[rank]);
  }
  sent_index = sent.batches[own].empty() ? -2 : sent.batches[own].last();
}

detail::MetricData GlobalMetrics::Impl::all_data() {
  if (!merged) {
    return {local.preds.all(), local.targets.all(), totals_of(local.totals)};
  }
  const bool any = sent.preds.like().defined();
  return {any ? sent.preds.all() : merged->no_preds, any ? sent.targets.all() : merged->no_targets, merged->totals};
}

detail::MetricData GlobalMetrics::Impl::last_data() {
  if (!merged) {
    return own_last_data();
  }
  const std::int64_t end = sent.preds.size();
  const std::int64_t begin = end - merged->last_rows;
  const bool any = sent.preds.like().defined();
  return {any ? sent.preds.slice(begin, end) : merged->no_preds,
          any ? sent.targets.slice(begin, end) : merged->no_targets, merged->last};
}

}  // namespace danling::inline v0
