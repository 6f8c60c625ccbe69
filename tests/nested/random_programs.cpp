// Random programs of operators, on nested tensors and on each element: values, sizes, types, gradients, and theirs.
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>

#include <nested/random_layers.hpp>
#include <nested/random_positions.hpp>
#include <nested/random_reductions.hpp>
#include <nested/random_shapes.hpp>
#include <nested/random_values.hpp>
#include <support/catch.hpp>

namespace random_programs {
namespace {

using Operator = void (*)(Program&);

/// Fills the program with a random batch.
void begin(Program& program) {
  Random& random = program.random;
  const std::int64_t rank = random.one_of<std::int64_t>({1, 1, 2, 2, 2, 3, 3, 4});
  const std::int64_t batch = random.one_of<std::int64_t>({1, 2, 2, 3, 3, 3, 4});
  const bool empty = random.chance(4), equal = random.chance(12), with_zeros = random.chance(35);
  std::vector<bool> ragged(static_cast<std::size_t>(rank), false);
  ragged[static_cast<std::size_t>(random.chance(60) ? 0 : random.below(rank))] = true;
  if (random.chance(25)) {
    ragged[static_cast<std::size_t>(random.below(rank))] = true;
  }
  Dims fixed;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    fixed.push_back(random.chance(3) ? 0 : random.between(1, 4));
  }
  std::vector<Dims> shapes;
  const bool long_ones = rank == 2 && random.chance(4);  // kernels take other ways
  const std::int64_t longest = long_ones ? 90 : 5;
  fixed[1 % fixed.size()] = long_ones ? 70 : fixed[1 % fixed.size()];
  for (std::int64_t element = 0; element < batch; ++element) {
    Dims own = fixed;
    for (std::size_t dim = 0; dim < own.size() && !equal; ++dim) {
      own[dim] = ragged[dim] ? random.between(with_zeros ? 0 : 1, longest) : own[dim];
    }
    shapes.push_back(own);
  }
  const torch::ScalarType type =
      random.chance(75) ? torch::kDouble
                        : random.one_of({torch::kLong, torch::kBool, torch::kInt, torch::kFloat, torch::kByte});
  danling::NestedTensorOptions options;
  options.batch_first = random.chance(75);
  if (random.chance(60)) {
    options.ragged_dims = Dims();
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      if (ragged[static_cast<std::size_t>(dim)]) {
        options.ragged_dims->push_back(dim);
      }
    }
  }
  options.dtype = type;
  options.padding_value = random.chance(20) ? 7 : 0;
  // The program creates leaves in the type of its tensor.
  program.x = NestedTensor({torch::zeros({1}, type)});
  Tensors own;
  for (const Dims& shape : shapes) {
    const auto pair = program.leaf(shape);
    own.push_back(pair.first);
    program.each.push_back(pair.second);
  }
  program.x = NestedTensor(own, options);
  program.text = danling::detail::concat("seed elements ", text_of(program.each), "of ", c10::toString(type),
                                         ", ragged ", text_of(NestedTensor(program.x).ragged_dims()),
                                         options.batch_first ? "" : ", batch second");
  if (empty) {
    program.text += ", of which none";
    program.phantom = program.each[0];
    program.x = program.x.slice(options.batch_first ? 0 : 1, 0, 0);
    program.each.clear();
  }
}

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = {
      unary,   unary,    with_plain, with_plain, with_nested, with_itself, in_place,   in_place,
      permute, permute,  transpose,  transpose,  unsqueeze,   unsqueeze,   squeeze,    reshape,
      reshape, reshape,  expand,     expand,     scan,        scan,        order,      order,
      move,    move,     select,     repeat,     pad,         split,       join,       join,
      stack,   elements, pick,       reduce,     reduce,      reduce,      reduce_all, reduce_elements,
      linear,  linear,   matmul,     matmul,     lower,       loss,        class_loss, layer,
      layer};
  return all;
}

/// The message of the difference; empty without one.
std::string run(std::uint64_t seed, std::int64_t steps, std::map<std::string, std::string>* refusals) {
  Program program(seed * 10 + static_cast<std::uint64_t>(steps));
  program.refusals = refusals;
  try {
    begin(program);
    const auto& all = operators();
    for (std::int64_t done = 0, tries = 0; done < steps && !program.ended && tries < 20; ++tries) {
      const std::size_t before = program.text.size();
      if (program.rank() == 0) {
        break;
      }
      if (program.batch() > 0 && program.largest() > 1e4) {
        break;
      }
      all[static_cast<std::size_t>(program.random.below(std::ssize(all)))](program);
      done += program.text.size() > before ? 1 : 0;
    }
    program.check_gradients();
  } catch (const std::exception& error) {
    return concat(
        seed, "/", steps, ": ", program.text, "\n   ",
        dynamic_cast<const Difference*>(&error) != nullptr ? std::string(error.what()) : Program::first_line(error));
  }
  return "";
}

TEST_CASE("random programs: nested tensors and their elements have the same values and gradients", "[nested][random]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    for (std::int64_t steps = 1; steps <= 5; ++steps) {
      const std::string difference = run(seed, steps, nullptr);
      INFO(difference);
      REQUIRE(difference.empty());
    }
  }
}

// DANLING_RANDOM_PROGRAMS: the first seed, their number, the steps of each.
TEST_CASE("random programs: as many as wanted", "[.random-programs]") {
  const char* given = std::getenv("DANLING_RANDOM_PROGRAMS");
  std::uint64_t first = 1, count = 1000;
  std::int64_t steps = 3;
  char comma = 0;
  std::istringstream(given != nullptr ? given : "") >> first >> comma >> count >> comma >> steps;
  std::map<std::string, std::string> refusals;
  std::int64_t differences = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::string difference = run(seed, steps, &refusals);
    if (!difference.empty()) {
      std::cout << difference << "\n";
      ++differences;
    }
    if (differences > 40) {
      break;
    }
  }
  for (const auto& [kind, program] : refusals) {
    std::cout << "refused: " << kind << "\n      " << program << "\n";
  }
  CHECK(differences == 0);
}

}  // namespace
}  // namespace random_programs
