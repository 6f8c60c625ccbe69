// A contestant of end_to_end.cpp: the least program over LibTorch that does the same work.
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace {

/// The bytes of an IDX file behind its header.
torch::Tensor read_bytes(const std::string& path, std::streamoff header) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg() - header;
  auto bytes = torch::empty({size}, torch::kUInt8);
  in.seekg(header);
  in.read(reinterpret_cast<char*>(bytes.data_ptr<std::uint8_t>()), size);
  TORCH_CHECK(in.good(), "expected to read ", path);
  return bytes;
}

torch::Tensor normalized(const torch::Tensor& pixels) {
  return pixels.to(torch::kFloat).div_(255).sub_(0.1307).div_(0.3081);
}

void train(const std::string& data, const std::string& folder) {
  torch::manual_seed(1);
  torch::set_num_threads(1);
  const auto images = read_bytes(data + "/train-images-idx3-ubyte", 16).view({-1, 784});
  const auto labels = read_bytes(data + "/train-labels-idx1-ubyte", 8).to(torch::kLong);
  torch::nn::Sequential net(torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  double first_step = 0;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  for (const auto& rows : torch::randperm(images.size(0)).split(64)) {
    const auto target = labels.index_select(0, rows);
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(normalized(images.index_select(0, rows))), target);
    loss.backward();
    optimizer.step();
    samples += target.size(0);
    if (++steps == 1) {
      first_step = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }
  }
  torch::save(net, folder + "/model.pt");
  torch::save(optimizer, folder + "/optimizer.pt");
  const torch::NoGradGuard no_grad;
  const auto loss = torch::nn::functional::cross_entropy(net->forward(normalized(images.narrow(0, 0, 1000))),
                                                         labels.narrow(0, 0, 1000));
  std::ofstream(folder + "/result.txt") << std::fixed << first_step << ' ' << steps << ' ' << samples << ' '
                                        << loss.item<double>() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  train(argv[1], argv[2]);
  return 0;
}
