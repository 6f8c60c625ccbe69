#include <danling/optim/averaging_options.hpp>

#include <danling/config/fields.hpp>

namespace danling::inline v0::optim {

void EMAOptions::fields(Fields& f) {
  f("decay", decay, "weight of the average at an update; unset: 0.999").range(0, 1);
  f("warmup", warmup,
    "after n updates, the next one decays by at most (1 + n) / (warmup + n), the first by 0; 0: decay at once; unset: "
    "10")
      .at_least(0);
  f("start", start, "updates before averaging begins; unset: 0").at_least(0);
  f("interval", interval, "updates between averages; unset: 1").at_least(1);
  f("use_buffers", use_buffers, "average buffers too; unset: copy them");
}

void SWAOptions::fields(Fields& f) {
  f("start", start,
    "epochs before averaging begins, or updates in a run by `steps`; below 1: a share of the run; unset: 0.75")
      .at_least(0);
  f("interval", interval, "epochs or updates between averages; unset: each epoch, or 1/100 of the updates").at_least(1);
  f("lr", lr, "learning rate to anneal to from `start` on, instead of the schedule; unset: the schedule continues")
      .at_least(0);
  f("anneal", anneal, "epochs or updates until that rate; unset: 10 intervals").at_least(0);
  f("anneal_strategy", anneal_strategy, "shape of the annealing; unset: cos").choices({"cos", "linear"});
  f("use_buffers", use_buffers, "average buffers too; unset: copy them");
  f("update_bn", update_bn,
    "estimate batch normalization's statistics over the training data before the average is evaluated; unset: true");
  f("bn_batches", bn_batches,
    "batches for that estimate; unset: one pass over the data, or 1/20 of the updates over a stream")
      .at_least(1);
}

}  // namespace danling::inline v0::optim
