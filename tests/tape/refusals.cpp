// Steps that are not recorded, and the reason that the user reads.
#include <danling/core/error.hpp>

#include <tape/steps.hpp>

namespace {
using namespace tape_test;
namespace nn = torch::nn;

TEST_CASE("Recorder: refuses steps in which the host reads a value", "[tape]") {
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          const at::Tensor sum = (weight * x).sum();
          return sum * x.mean().item<double>();
        })) ==
        "the host reads a value, as item() does, or a shape depends on one: aten::_local_scalar_dense, after weight "
        "was read");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return x.sum().item<double>() > 1e9 ? weight.mean() : (weight * x).sum();
        })) == "the host reads a value, as item() does, or a shape depends on one: aten::_local_scalar_dense");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return (weight * x).sum().is_nonzero() ? weight.sum() : weight.mean();
        })) ==
        "the host reads a value, as item() does, or a shape depends on one: aten::_local_scalar_dense, after weight "
        "was read");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return torch::allclose(x, weight) ? weight.mean() : weight.sum();
        })) == "the host reads a value, as item() does, or a shape depends on one: aten::allclose");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return weight.prod() * x.sum();  // its gradient depends on the number of zeros
        })) ==
        "the host reads a value, as item() does, or a shape depends on one: aten::nonzero, after weight was read, in "
        "the backward pass");
}

TEST_CASE("Recorder: refuses steps in which a shape depends on a value", "[tape]") {
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return weight.sum() * torch::nonzero(x > 0).size(0);
        })) == "the host reads a value, as item() does, or a shape depends on one: aten::nonzero");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return torch::masked_select(weight, x > -100).sum();
        })) == "the host reads a value, as item() does, or a shape depends on one: aten::masked_select");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) { return weight.index({x > -100}).sum(); })) ==
        "the host reads a value, as item() does, or a shape depends on one: aten::index.Tensor");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          return weight.sum() + std::get<0>(at::_unique2(x)).sum();
        })) == "the host reads a value, as item() does, or a shape depends on one: aten::_unique2");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          const at::Tensor lengths = torch::tensor({2, 1});
          return at::ctc_loss((weight * x).view({3, 2, 2}).log_softmax(2), torch::ones({2, 1}, at::kLong),
                              torch::tensor({3, 3}), lengths.clamp_max(1));
        })) ==
        "the host reads a value, as item() does, or a shape depends on one: aten::_ctc_loss, after weight was read");
}

TEST_CASE("Recorder: refuses tensors that are not plain memory", "[tape]") {
  nn::Embedding table(nn::EmbeddingOptions(11, 4).sparse(true));
  Subject sparse;
  sparse.hold(*table);
  sparse.step = classifying([=](const at::Tensor& x) mutable { return table(x); });
  sparse.batch = [](std::uint64_t seed) -> Tensors {
    return {random_labels(11, {8}, seed), random_labels(4, {8}, seed)};
  };
  CHECK(
      why_not(sparse) ==
      "a sparse tensor in aten::_sparse_coo_tensor_with_dims_and_tensors, after weight was read, in the backward pass");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          const at::Tensor sum = (weight * x).sum();
          return sum + torch::real(torch::conj(torch::complex(x, x)) * 2).sum();
        })) == "a tensor with a lazy conjugation or negation in aten::_conj, after weight was read");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          const at::Tensor sum = (weight * x).sum();
          return sum + x.to_mkldnn().to_dense().sum();
        })) == "a sparse tensor in aten::to_mkldnn, after weight was read");
}

TEST_CASE("Recorder: refuses tensors that change their memory", "[tape]") {
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          at::Tensor y = x.clone();
          y.resize_({2, 2});
          return (weight * x).sum() + y.sum();
        })) == "it replaces the memory of a tensor or changes its size: aten::resize_");
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          at::Tensor y = x.clone();
          y.resize_as_(x[0]);
          return (weight * x).sum() + y.sum();
        })) == "it replaces the memory of a tensor or changes its size: aten::resize_as_");
}

TEST_CASE("Recorder: says that code of the step refuses", "[tape]") {
  CHECK(why_not(small([](const at::Tensor& weight, const at::Tensor& x) {
          if (tape::observer() != nullptr) {
            tape::observer()->mark_unrecordable("it asks the network");
            tape::observer()->mark_unrecordable("it asks again");
          }
          return (weight * x).sum();
        })) == "it asks the network");
}

TEST_CASE("reconcile: numbers that change from step to step", "[tape]") {
  auto count = std::make_shared<int>(0);
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum() * ++*count; })) ==
        "the number other of aten::mul.Scalar, after weight was read changes from step to step: 1, then 2");
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return (weight * x).sum() * torch::tensor(std::vector<float>{1, static_cast<float>(++*count)}).sum();
        })) ==
        "a tensor that is filled outside of LibTorch's operators, as by torch::tensor(), changes from step to "
        "step: of aten::empty.memory_format");
  *count = 0;
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return (weight * x).sum() * torch::tensor({1.0F, static_cast<float>(++*count)}).sum();
        })) == "the number value of aten::fill_.Scalar changes from step to step: 1., then 2.");
  *count = 0;
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return torch::dropout(weight * x, 0.25 * ++*count, true).sum();
        })) ==
        "the number p of aten::bernoulli_.float, after weight was read changes from step to step: 0.75, then 0.5");
  *count = 0;
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return (weight * x).narrow(0, ++*count, 1).sum();
        })) == "the number start of aten::slice.Tensor, after weight was read changes from step to step: 1, then 2");
  // Numbers that are equal in each step do not prevent a recording.
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    return (weight * x * torch::tensor(std::vector<float>{1, 2, 3, 4}) * torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}))
                   .sum() *
               torch::tensor(0.5F) +
           torch::scalar_tensor(2);
  }));
}

TEST_CASE("reconcile: tensors of the program that are other ones in each step", "[tape]") {
  auto other = std::make_shared<std::uint64_t>(0);
  const Subject subject = small([=](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor outside;
    {
      const tape::NoRecordGuard not_recorded;
      outside = random({3, 4}, ++*other);
    }
    return (weight * x * outside).sum();
  });
  CHECK(why_not(subject) ==
        "a tensor Float [3, 4] that is neither of the batch nor of the model is another one in each step (a batch "
        "type of the program must list its members in parts())");
  const Subject numbers = small([=](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor outside;
    {
      const tape::NoRecordGuard not_recorded;
      outside = torch::full({}, static_cast<double>(++*other));
    }
    return (weight * x * outside).sum();
  });
  CHECK(why_not(numbers) == "a number that the step converts to a tensor changes from step to step");
  const Subject memory = small([=](const at::Tensor& weight, const at::Tensor& x) {
    std::vector<float> numbers_of_step(12, static_cast<float>(++*other));
    return (weight * x * torch::from_blob(numbers_of_step.data(), {3, 4}).clone()).sum();
  });
  CHECK(why_not(memory) ==
        "a tensor Float [3, 4] that is neither of the batch nor of the model is another one in each step (a batch "
        "type of the program must list its members in parts())");
  const Subject large = small([=](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor outside;
    {
      const tape::NoRecordGuard not_recorded;
      outside = torch::ones({20000});  // more than is compared
    }
    return (weight * x).sum() * outside.sum();
  });
  CHECK(why_not(large) ==
        "a tensor Float [20000] that is neither of the batch nor of the model is another one in each step (a batch "
        "type of the program must list its members in parts())");
  const Subject changed = small([=](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor outside;
    {
      const tape::NoRecordGuard not_recorded;
      outside = torch::ones({3, 4});
    }
    outside.add_(1);
    return (weight * x * outside).sum();
  });
  CHECK(why_not(changed) == "a tensor Float [3, 4] of the program is made and changed in each step");
  const Subject filled = small([=](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor numbers_of_step = torch::tensor(std::vector<float>{1, 2, 3, 4});
    numbers_of_step.add_(1);
    return (weight * x * numbers_of_step).sum();
  });
  CHECK(why_not(filled) == "a tensor that is filled outside of LibTorch's operators is changed in the same step");
}

TEST_CASE("reconcile: a state that a step leaves to the next", "[tape]") {
  auto state = std::make_shared<at::Tensor>(torch::zeros({3, 4}));
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          const at::Tensor y = weight * x + *state;
          *state = y.detach();
          return y.sum();
        })) == "it reads a tensor Float [3, 4] that the previous step created");
}

TEST_CASE("reconcile: steps of different shapes or operators, by the first difference", "[tape]") {
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (x.mm(weight)).sum(); });
  subject.batch = [](std::uint64_t seed) -> Tensors {
    return {random({static_cast<std::int64_t>(seed) + 1, 3}, seed)};
  };
  CHECK(why_not(subject) ==
        "the number size of aten::expand, after weight was read, in the backward pass changes from step to step: [2, "
        "4], then "
        "[3, 4]");
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver*) -> Tensors {
    return {batch[0].mm(weight.detach()).sum()};
  };
  CHECK(why_not(subject) == "a tensor Float [2, 3] is Float [3, 3] in the next step");
  CHECK(why_not(small([=](const at::Tensor& weight, const at::Tensor& x) {
          return ++*count % 2 == 1 ? (weight * x).sum() : (weight + x).sum();
        })) == "one step calls aten::mul.Tensor, the next aten::add.Tensor in its place");
  subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [=, weight = subject.held[0].detach()](const Tensors& batch, StepObserver*) -> Tensors {
    const at::Tensor product = weight * batch[0];
    return {++*count % 2 == 1 ? product * batch[0] : product * weight};
  };
  CHECK(why_not(subject) == "aten::mul.Tensor, after weight was read gets another tensor as other in the next step");
  subject.step = [=, weight = subject.held[0].detach()](const Tensors& batch, StepObserver*) -> Tensors {
    return {++*count % 2 == 1 ? batch[0].exp() : weight.exp()};
  };
  CHECK(why_not(subject) == "the step reads another tensor in the next step");
  Subject longer = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  longer.step = [=, weight = longer.held[0]](const Tensors& batch, StepObserver*) -> Tensors {
    const torch::NoGradGuard no_grad;
    const at::Tensor sum = (weight * batch[0]).sum();
    return {++*count % 2 == 1 ? sum : sum.exp()};
  };
  CHECK(why_not(longer) ==
        "one step calls 2 operators, the next 3; the first that one of them lacks: aten::exp, after weight was read");
  longer.step = [=](const Tensors& batch, StepObserver*) -> Tensors {
    tape::host_call(++*count % 2 == 1 ? "loss" : "accuracy", {batch[0]}, [](const Tensors&) {});
    return {batch[0]};
  };
  CHECK(why_not(longer) == "the next step has accuracy in place of loss");
}

TEST_CASE("Recorder: one at a time in a process", "[tape]") {
  const auto one = std::make_unique<tape::Recorder>(tape::StepTensors{});
  CHECK(error_of<danling::StateError>([] { const tape::Recorder two(tape::StepTensors{}); }) ==
        "[tape.record] expected no other recording in this process, got one in progress");
  CHECK(tape::observer() == one.get());
  const tape::NoRecordGuard outside;
  CHECK(tape::observer() == nullptr);
}

TEST_CASE("Recorder: a step that throws leaves none behind", "[tape]") {
  const Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    TORCH_CHECK(tape::observer() == nullptr, "not while it is watched");
    return (weight * x).sum();
  });
  CHECK(error_of<c10::Error>([&] { record(subject, 1); }).starts_with("not while it is watched"));
  CHECK(tape::observer() == nullptr);
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); }));
}

}  // namespace
