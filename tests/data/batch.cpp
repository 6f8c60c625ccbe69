// Functions of batches that the loader and the runner call, for the default batch, nested containers and users' types.
#include <danling/data/batch.hpp>

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <danling/data/batch_traits.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace danling_batch_user {

namespace data = danling::data;

/// Told by functions beside it; notes what was asked of it.
struct Words {
  std::int64_t count = 0;
  std::string place = "cpu";
};
inline std::int64_t batch_size(const Words& words) { return words.count; }
inline Words to_device(Words words, c10::Device device) { return {words.count, device.str()}; }
inline Words pin_memory(Words words) { return {words.count, "pinned"}; }

/// Told by members, which pass their parts on.
struct Graph {
  at::Tensor nodes;
  std::vector<at::Tensor> edges;
  bool is_pinned = false;
  std::int64_t size() const { return nodes.size(0); }
  Graph to(c10::Device device) const { return {data::to_device(nodes, device), data::to_device(edges, device)}; }
  Graph pin_memory() const { return {nodes, edges, true}; }
};

struct Unmoved {
  at::Tensor x;
};

}  // namespace danling_batch_user

namespace {

namespace batch_test {

namespace data = danling::data;
using danling::State;
using danling_batch_user::Graph;
using danling_batch_user::Unmoved;
using danling_batch_user::Words;
using danling_test::error_of;

// Tensors, trees and containers of what moves are batches; a container with one part that does not move is none, nor is
// one that counts nothing.
static_assert(data::BatchType<data::Batch> && data::BatchType<at::Tensor> && data::BatchType<State>);
static_assert(data::BatchType<std::vector<at::Tensor>> && data::BatchType<std::array<at::Tensor, 2>>);
static_assert(data::BatchType<std::map<std::string, std::pair<at::Tensor, std::vector<std::string>>>>);
static_assert(data::BatchType<std::tuple<std::optional<at::Tensor>, State, int, Graph, Words>>);
static_assert(!data::BatchType<std::pair<at::Tensor, Unmoved>> && !data::BatchType<std::vector<std::string>>);
static_assert(!data::BatchType<int> && !data::BatchType<std::string>);
static_assert(data::HasPinMemory<data::Batch> && data::HasPinMemory<std::pair<Graph, std::optional<Words>>>);
static_assert(!data::HasPinMemory<Unmoved> && !data::HasPinMemory<std::vector<Unmoved>>);

TEST_CASE("batch_size: the first tensor of a container that counts, wherever it stands", "[data]") {
  CHECK(data::batch_size(std::pair(at::zeros({3, 2}), at::zeros({5}))) == 3);
  CHECK(data::batch_size(std::vector<at::Tensor>{at::Tensor(), at::zeros({}), at::zeros({4})}) == 4);
  CHECK(data::batch_size(std::tuple(std::string("a"), std::optional<at::Tensor>(), Words{7})) == 7);
  State tree;
  tree["name"] = "x";
  tree["inputs"] = State::List{State(at::zeros({6, 1}))};
  CHECK(data::batch_size(tree) == 6);
  CHECK(data::batch_size(std::map<std::string, State>{{"a", State(1)}, {"b", tree}}) == 6);
  CHECK(error_of<danling::DataError>([] { return data::batch_size(std::vector<at::Tensor>()); }) ==
        "[data.batch_size] expected a tensor whose first dimension counts samples, got none in the batch");
}

TEST_CASE("Batch: with several inputs in extra, the first of them counts the samples", "[data]") {
  data::Batch batch;
  batch.set("inputs.left", at::zeros({3, 2}));
  batch.target = at::zeros({9});
  CHECK(batch.size() == 3);
  batch.extra = State();
  CHECK(batch.size() == 9);
  batch.target = at::Tensor();
  CHECK(error_of<danling::DataError>([&] { return batch.size(); }) ==
        "[data.batch] expected an input, or another tensor with a first dimension that counts samples, got none");
  batch.input = at::zeros({});
  CHECK(error_of<danling::DataError>([&] { return batch.size(); }) ==
        "[data.batch] expected an input with a first dimension that counts samples, got a scalar");
}

TEST_CASE("to_device: moves every tensor of nested containers, and leaves the rest", "[data]") {
  // The meta device: tensors without memory, which every machine has.
  const c10::Device meta(c10::kMeta);
  State tree;
  tree["a"] = State::Tuple{{State(at::zeros({2})), State("text")}};
  using B = std::tuple<std::vector<at::Tensor>, std::map<std::string, State>, std::optional<Graph>, Words, int>;
  const B batch = data::to_device(
      B{{at::zeros({1}), at::Tensor()}, {{"t", tree}}, Graph{at::zeros({2}), {at::zeros({3})}}, Words{1}, 5}, meta);
  CHECK(std::get<0>(batch)[0].is_meta());
  CHECK_FALSE(std::get<0>(batch)[1].defined());
  CHECK(std::get<1>(batch).at("t").at("a").tuple()[0].tensor().is_meta());
  CHECK(std::get<1>(batch).at("t").at("a").tuple()[1].string() == "text");
  CHECK(std::get<2>(batch)->nodes.is_meta());
  CHECK(std::get<2>(batch)->edges[0].is_meta());
  CHECK(std::get<3>(batch).place == "meta");
  CHECK(std::get<4>(batch) == 5);
}

TEST_CASE("to_device: what is there already is shared", "[data]") {
  const at::Tensor x = at::zeros({2});
  const auto moved = data::to_device(std::pair(x, State(x)), c10::kCPU);
  CHECK(moved.first.is_same(x));
  CHECK(moved.second.tensor().is_same(x));
}

TEST_CASE("pin_memory: a user's type pins itself, by a member or a function beside it", "[data]") {
  const auto pinned = data::pin_memory(std::pair(Graph{at::Tensor(), {}}, std::vector<Words>{{1}, {2}}));
  CHECK(pinned.first.is_pinned);
  CHECK(pinned.second[1].place == "pinned");
}

TEST_CASE("to_device: from pinned memory to a GPU and back, nested", "[data][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  State tree;
  tree["x"] = at::full({1024}, 2.0);
  const auto batch = data::pin_memory(std::pair(std::vector<at::Tensor>{at::full({1024}, 3.0)}, tree));
  CHECK(batch.first[0].is_pinned());
  CHECK(batch.second.at("x").tensor().is_pinned());
  const auto moved = data::to_device(batch, c10::Device(c10::kCUDA, 0));
  CHECK(moved.first[0].is_cuda());
  // The way back waits: what it gives can be read at once.
  const auto back = data::to_device(moved, c10::kCPU);
  CHECK(back.first[0].equal(batch.first[0]));
  CHECK(back.second.at("x").tensor().equal(tree.at("x").tensor()));
  CHECK(data::pin_memory(moved).first[0].is_cuda());
}

}  // namespace batch_test

}  // namespace
