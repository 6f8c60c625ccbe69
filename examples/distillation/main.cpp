// A small network learns digits from a large one, without labels. Three runs:
//
//   distillation --role teacher                             a convolutional net, all labels: 99 % of the test images
//   distillation --role student                             a small MLP, 50 labels: 86 %
//   distillation --role student --distill.checkpoint FILE   the same MLP, all images, no label: 97 %
//
// FILE is the teacher's model.pth; README.md has the commands.
#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

enum class Role { teacher, student };
constexpr auto names_of(Role) { return std::array{"teacher", "student"}; }

struct DigitConfig : dl::RunnerConfig {
  Role role = Role::student;
  std::int64_t labels = 50;

  DigitConfig() {
    seed = 1;
    num_threads = 1;
    steps = 1200;
    evaluate_interval = 120;
    score_name = "acc";
    test_splits = {"test"};
    dataloader.batch_size = 32;
    optim.type = "adamw";
    optim.lr = 2e-3;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(dl::Fields& f) override {
    f("role", role, "the network to train");
    f("labels", labels, "images whose label a student without a teacher sees").at_least(32);
  }
};

torch::nn::Sequential make_teacher() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(16, 32, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(), Dropout(0.25),
                    Linear(32 * 7 * 7, 10));
}

torch::nn::Sequential make_student() {
  using namespace torch::nn;
  return Sequential(AvgPool2d(2), Flatten(), Linear(14 * 14, 24), ReLU(), Linear(24, 10));
}

class DigitRunner : public dl::TorchRunner {
 public:
  explicit DigitRunner(const DigitConfig& config) : TorchRunner(config) {
    const auto [train, val] =
        dl::data::hold_out(dl::data::mnist(DIGITS, dl::data::DatasetSplit::train), 140, /*seed=*/0);
    datasets["train"] = train;
    datasets["val"] = val;
    datasets["test"] = dl::data::mnist(DIGITS, dl::data::DatasetSplit::test);
    metrics = dl::accuracy_metrics(10);

    model = config.role == Role::teacher ? make_teacher() : make_student();
    if (config.distill.checkpoint) {
      teacher = make_teacher();  // the only source of the loss: there is no criterion
    } else {
      criterion = torch::nn::CrossEntropyLoss();
      if (config.role == Role::student) {
        datasets["train"] = dl::data::random_split(train, {config.labels, train.size() - config.labels}, /*seed=*/0)[0];
      }
    }
  }
};

int main(int argc, char** argv) { return dl::run<DigitRunner, DigitConfig>(argc, argv); }
