// All headers that a training program needs, in the order of the data flow. Include <torch/torch.h> too.
// nn/lora_linear.hpp and nn/sync_batch_norm.hpp, which include LibTorch's modules, are separate.
#pragma once

// clang-format off
#include <danling/version.hpp>

#include <danling/core/catching.hpp>
#include <danling/core/error.hpp>
#include <danling/core/quantity.hpp>
#include <danling/core/result.hpp>
#include <danling/core/round.hpp>
#include <danling/core/signals.hpp>

#include <danling/config/config.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/workspace.hpp>

#include <danling/state/state.hpp>
#include <danling/tensors/any_value.hpp>
#include <danling/tensors/custom_function.hpp>
#include <danling/tensors/nested_tensor.hpp>
#include <danling/tensors/pn_tensor.hpp>

#include <danling/data/batch.hpp>
#include <danling/data/collate.hpp>
#include <danling/data/collate_nested.hpp>
#include <danling/data/collate_padded.hpp>
#include <danling/data/concat.hpp>
#include <danling/data/dataset.hpp>
#include <danling/data/dataset_adapter.hpp>
#include <danling/data/datasets/array_datasets.hpp>
#include <danling/data/datasets/cifar.hpp>
#include <danling/data/datasets/image_folder.hpp>
#include <danling/data/datasets/json_lines.hpp>
#include <danling/data/datasets/mnist.hpp>
#include <danling/data/datasets/table_dataset.hpp>
#include <danling/data/datasets/tar_shards.hpp>
#include <danling/data/datasets/tokens.hpp>
#include <danling/data/datum.hpp>
#include <danling/data/default_options.hpp>
#include <danling/data/distributed_sampler.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/loader_visit.hpp>
#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/split_map.hpp>
#include <danling/data/stream.hpp>
#include <danling/data/stream_adapter.hpp>
#include <danling/data/stream_parts.hpp>
#include <danling/data/subset.hpp>
#include <danling/data/subset_sampler.hpp>
#include <danling/data/tensor_dataset.hpp>
#include <danling/data/transforms.hpp>
#include <danling/data/vocabulary.hpp>
#include <danling/data/weighted_sampler.hpp>

#include <danling/optim/adagrad.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/averaging.hpp>
#include <danling/optim/batch_norm_statistics.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/clip.hpp>
#include <danling/optim/curves.hpp>
#include <danling/optim/grad_scaler.hpp>
#include <danling/optim/layerwise.hpp>
#include <danling/optim/lbfgs.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/muon.hpp>
#include <danling/optim/schedule_summary.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/optim/swalr.hpp>
#include <danling/optim/torch_adapter.hpp>

#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/batch_losses.hpp>
#include <danling/metrics/batch_metric.hpp>
#include <danling/metrics/build.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/losses.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/io.hpp>
#include <danling/checkpoint/pretrained.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/checkpoint/sharded_manager.hpp>
#include <danling/checkpoint/weights.hpp>

#include <danling/nn/allocated_bytes.hpp>
#include <danling/nn/distillation.hpp>
#include <danling/nn/lora.hpp>
#include <danling/nn/losses.hpp>
#include <danling/nn/recompute.hpp>
#include <danling/nn/summary.hpp>

#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/topology.hpp>

#include <danling/telemetry/csv_sink.hpp>
#include <danling/telemetry/heartbeat.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/mlflow.hpp>
#include <danling/telemetry/openmetrics.hpp>
#include <danling/telemetry/sink.hpp>
#include <danling/telemetry/sink_thread.hpp>
#include <danling/telemetry/supervisor.hpp>
#include <danling/telemetry/tensorboard_sink.hpp>
#include <danling/telemetry/wandb.hpp>

#include <danling/runner/deepspeed_runner.hpp>
#include <danling/runner/finders.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/pretrained.hpp>
#include <danling/runner/run.hpp>
#include <danling/runner/runner_config.hpp>
#include <danling/runner/stacks.hpp>
#include <danling/runner/torch_runner.hpp>
#include <danling/runner/trainer.hpp>
// clang-format on
