// Callbacks that throw.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("Callback: the error of a callback that throws has its name", "[runner]") {
  struct Thrower : dl::Callback {
    void on_round_end(const dl::RoundEvent&) override { throw std::runtime_error("no room"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  runner.add(Thrower());
  CHECK(error_of<dl::Error>([&] { runner.train(); }) ==
        "[runner.callback] expected 'Thrower' to return from on_round_end, got an exception: no room");
}

TEST_CASE("Callback: an exception in on_stop does not prevent the save", "[runner]") {
  struct Throwing : dl::Callback {
    std::string name() const override { return "throwing"; }
    void on_stop(const dl::StopEvent&) override { throw std::runtime_error("bad stop"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  runner.add(Throwing());
  stop_before(runner, 3);
  CHECK(error_of<dl::Error>([&] { runner.train(); }) ==
        "[runner.callback] expected 'throwing' to return from on_stop, got an exception: bad stop");
  CHECK(step_of(runner.workspace().checkpoint_dir() / "latest.pth") == 4);
}

TEST_CASE("Callback: an exception in on_exception does not replace the first exception", "[runner]") {
  struct Throwing : dl::Callback {
    std::string name() const override { return "throwing"; }
    void on_exception(const dl::ExceptionEvent&) override { throw std::runtime_error("another"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.add(Throwing());
  runner.before_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("the first"); };
  CHECK_THAT(error_of<dl::Error>([&] { runner.train(); }), ContainsSubstring("the first"));
}

template <class T>
struct Watching : dl::Callback {};

TEST_CASE("Callback: the default name is that of the class, without namespaces and with template arguments",
          "[runner]") {
  struct Local : dl::Callback {};
  CHECK(Local().name() == "Local");
  CHECK(Watching<int>().name() == "Watching<int>");
  CHECK_THAT(Watching<dl::Batch>().name(), StartsWith("Watching<danling::"));
  CHECK_THAT(Watching<dl::Batch>().name(), EndsWith("Batch>"));
}

}  // namespace
}  // namespace runner_test
