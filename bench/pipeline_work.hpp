// The measured process of bench/pipeline.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

constexpr std::int64_t pipeline_width = 512, pipeline_layers = 8, pipeline_micro_batches = 8,
                       pipeline_micro_batch_size = 32, pipeline_batches = 4;

/// Writes weights of all layers, inputs and targets, which every contestant reads.
void write_pipeline_inputs(const std::string& folder);

/// Trains on command, as rank_loop.hpp describes. A negative number trains as many steps, and answers with the squares
/// of this rank's gradients instead of the loss, which only the rank of the last stage has. `arguments`: the folder,
/// the schedule, and the number of stages per rank.
int train_pipeline_on_command(const std::vector<std::string>& arguments);

}  // namespace bench
