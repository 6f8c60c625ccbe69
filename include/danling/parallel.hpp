// Headers for training on a grid of processes. Include <danling/danling.hpp> too.
#pragma once

#include <danling/parallel/context_parallel.hpp>
#include <danling/parallel/expert_exchange.hpp>
#include <danling/parallel/mixture_of_experts.hpp>
#include <danling/parallel/parallelizable.hpp>
#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/pipeline_schedule.hpp>
#include <danling/parallel/pipeline_split.hpp>
#include <danling/parallel/rank_rng_guard.hpp>
#include <danling/parallel/ring_attention.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/tensor_layers.hpp>
#include <danling/parallel/tensor_plan.hpp>
#include <danling/parallel/topology.hpp>
#include <danling/parallel/vocab_cross_entropy.hpp>
#include <danling/runner/parallel_runner.hpp>
