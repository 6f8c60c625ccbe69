#include <danling/core/tree.hpp>

#include <support/error.hpp>

namespace {

using Text = danling::Tree<int*>;  // any type can stand for the tensor
using danling_test::error_of;

TEST_CASE("Tree: a map keeps the order of insertion and finds string and integer keys", "[core]") {
  Text tree;
  tree["b"] = 1;
  tree["a"] = 2.5;
  tree[7] = "seven";
  std::string order;
  for (const auto& entry : tree.map()) {
    order += entry.key.text() + " ";
  }
  CHECK(order == "'b' 'a' 7 ");
  CHECK(tree.at("b").integer() == 1);
  CHECK(tree.at("a").number() == 2.5);
  CHECK(tree.at(7).string() == "seven");
  CHECK(tree.find("7") == nullptr);
  CHECK(tree.map().erase("b"));
  CHECK(tree.at(7).string() == "seven");
  CHECK(tree.map().size() == 2);
}

TEST_CASE("Tree: reading another kind says what was expected and what was there", "[core]") {
  Text tree;
  tree["epoch"] = 3;
  CHECK(error_of<danling::StateError>([&] { tree.at("epoch").string(); }) ==
        "[state.read] expected a string, got an integer");
  CHECK(error_of<danling::StateError>([&] { tree.at("epochs"); }) ==
        "[state.at] expected key 'epochs', got keys ['epoch']");
  CHECK(tree.at("epoch").number() == 3.0);
}

TEST_CASE("Tree: a temporary gives its values away, so that a loop over them reads no dead memory", "[core]") {
  const auto make = [] {
    Text tree;
    tree["long enough to lie on the heap"] = Text::List{"another text that lies on the heap", 2};
    return tree;
  };
  std::string seen;
  for (const auto& entry : make().map()) {
    seen += entry.key.string();
  }
  CHECK(seen == "long enough to lie on the heap");
  const Text::List items = Text(make().at("long enough to lie on the heap")).items();
  CHECK(Text(items[0]).string() == "another text that lies on the heap");
  STATIC_REQUIRE(std::is_same_v<decltype(make().map()), Text::Map>);
  STATIC_REQUIRE(std::is_same_v<decltype(make().string()), std::string>);
}

}  // namespace
