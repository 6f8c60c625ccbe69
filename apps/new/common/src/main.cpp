// Trains, evaluates and prints a table of the result.
//
//   @NAME@ --config config.yaml --optim.lr 1e-3
//   @NAME@ --help
#include <danling/runner/run.hpp>

#include "config.hpp"
#include "runner.hpp"

int main(int argc, char** argv) { return danling::run<Runner, Config>(argc, argv); }
