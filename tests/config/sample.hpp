// A config with every kind of field, as a user would write it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>

namespace danling_test {

struct SampleLayer : danling::Section {
  std::string kind = "dense";
  std::optional<int> width;
  void fields(danling::Fields& f) override {
    f("kind", kind, "what it is").choices({"dense", "conv"});
    f("width", width, "units").at_least(1);
  }
};

struct SampleData : danling::Section {
  std::string root = "data";
  std::map<std::string, SampleLayer> parts;
  void fields(danling::Fields& f) override {
    f("root", root, "where the data is").non_semantic();
    f.others("part", parts, "one part");
  }
};

struct SampleConfig : danling::Config {
  bool verbose = false;
  int small = 1;
  std::int64_t epochs = 3;
  std::size_t count = 5;
  float rate = 0.1F;
  double lr = 1e-3;
  std::string name = "sample";
  std::optional<bool> shuffle;
  std::optional<std::int64_t> steps;
  std::optional<double> clip;
  std::optional<std::string> tag;
  std::vector<std::int64_t> sizes = {1, 2};
  std::vector<double> betas = {0.9, 0.999};
  std::vector<std::string> words;
  std::optional<std::vector<std::string>> splits;
  SampleData data;
  std::vector<SampleLayer> layers;
  std::string mode = "auto";
  int posts = 0;

  void fields(danling::Fields& f) override {
    f("verbose", verbose, "say more");
    f("small", small, "a small number").range(-10, 10);
    f("epochs", epochs, "how long").non_semantic();
    f("count", count, "how many");
    f("rate", rate, "a float");
    f("lr", lr, "learning rate").alias("learning_rate");
    f("name", name, "a name");
    f("shuffle", shuffle, "in random order");
    f("steps", steps, "how long, in steps");
    f("clip", clip, "a limit");
    f("tag", tag, "a tag");
    f("sizes", sizes, "sizes");
    f("betas", betas, "decay rates").range(0, 1);
    f("words", words, "words");
    f("splits", splits, "splits");
    f("data", data, "the data");
    f("layers", layers, "the layers");
    f("mode", mode, "how").choices({"auto", "fast"}).synonym("quick", "fast").refuse("exact", "exact mode");
    static const danling::ReservedKey later = {"later", false, "time travel"};
    f.reserved(later);
  }
  void post() override { ++posts; }
  void validate() const override {
    if (epochs > 1000) {
      throw danling::ConfigError("[sample.validate] expected at most 1000 epochs");
    }
  }
};

struct LargerConfig : SampleConfig {
  int extra = 1;
  void fields(danling::Fields& f) override {
    SampleConfig::fields(f);
    f("extra", extra, "one more");
  }
};

}  // namespace danling_test
