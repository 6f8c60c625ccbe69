// Written by tests/golden/metrics_golden.py with DanLing 0.4.8, torch 2.13.0+cpu, torchmetrics 1.9.0
// clang-format off
#pragma once

#include <cstdint>
#include <vector>

namespace {

struct GoldenRow {
  double val;
  double avg;
  std::int64_t n;
  std::int64_t count;
};

inline const std::vector<float> multiclass_scores_0 = {-0.109375, -0.96875, 0.953125, 1.78125, -1.484375, -1.90625, 1.75, 0.0625, -0.140625, -0.46875, 1.796875, 1.171875, -0.796875, -0.15625, 1.109375, -1.890625, -1.5, -0.734375, -1.671875, 0.40625, -1.765625, 0.140625, 1.78125, 1.09375, 1.40625, 1.15625, 1.546875, -0.9375, 0.921875, -1.234375, -1.71875, -0.921875, 1.953125, -0.265625, 0.0625, 1.484375, 0.40625, 1.359375, 1.078125, 0.796875, 1.25, -0.15625, 0.6875, -1.78125, 0.234375, -0.703125, 0.609375, -1.171875};
inline const std::vector<std::int64_t> multiclass_labels_0 = {1, 4, 0, -100, 3, -100, 3, 0};
inline const std::vector<GoldenRow> multiclass_rows_0 = {{0.3333333432674408, 0.3333333432674408, 6, 6}, {0.3333333432674408, 0.3333333432674408, 6, 6}, {0.8333333134651184, 0.8333333134651184, 6, 6}};
inline const std::vector<float> multiclass_scores_1 = {0.34375, 1.40625, 1.3125, -1.0625, -1.65625, -1.640625, 1.015625, 0.640625, 0.21875, -0.125, -1.71875, 0.46875, -1.953125, -1.390625, -1.140625, -1.75, -0.421875, 1.25, 0.328125, 0.09375, -0.765625, -1.671875, 0.703125, 0.5, 0.875, -0.90625, 1.015625, 1.0, 1.671875, 1.078125};
inline const std::vector<std::int64_t> multiclass_labels_1 = {4, 0, 4, 5, 1};
inline const std::vector<GoldenRow> multiclass_rows_1 = {{0.20000000298023224, 0.27272727950052783, 5, 11}, {0.6000000238418579, 0.4545454708012668, 5, 11}, {0.6000000238418579, 0.7272727272727273, 5, 11}};
inline const std::vector<float> multiclass_scores_2 = {0.40625, 1.484375, 0.0625, 0.421875, 0.703125, -1.921875, 1.3125, 0.515625, -1.84375, 1.0, -0.9375, -1.53125, 0.65625, 1.71875, 0.8125, 0.21875, 1.90625, -1.828125, -1.515625, -1.84375, 0.953125, 0.0, 1.640625, 0.375, 0.546875, -0.59375, 0.90625, -0.53125, 0.5, 0.953125, 0.109375, 0.390625, 1.015625, -1.171875, -1.796875, -0.953125, 0.46875, -0.234375, 0.140625, -0.09375, 0.609375, -0.515625};
inline const std::vector<std::int64_t> multiclass_labels_2 = {5, 0, 2, 1, 1, -100, 1};
inline const std::vector<GoldenRow> multiclass_rows_2 = {{0.1666666716337204, 0.23529412378283107, 6, 17}, {0.1666666716337204, 0.35294118874213276, 6, 17}, {0.3333333432674408, 0.5882352976238027, 6, 17}};

inline const std::vector<float> binary_scores_0 = {0.890625, 0.265625, 0.21875, 0.78125, 0.109375, 0.03125, 0.515625, 0.1875};
inline const std::vector<std::int64_t> binary_labels_0 = {0, 1, 0, 1, 1, 1, 1, 1};
inline const std::vector<GoldenRow> binary_rows_0 = {{0.375, 0.375, 8, 8}};
inline const std::vector<float> binary_scores_1 = {-1.71875, 1.296875, -0.765625, -0.40625, -1.96875};
inline const std::vector<std::int64_t> binary_labels_1 = {1, 0, -100, 1, 0};
inline const std::vector<GoldenRow> binary_rows_1 = {{0.25, 0.3333333333333333, 4, 12}};
inline const std::vector<float> binary_scores_2 = {0.125, 0.84375, 0.578125, 0.28125, 0.109375, 0.796875, 0.234375};
inline const std::vector<std::int64_t> binary_labels_2 = {-100, 0, 1, 0, 0, -100, 0};
inline const std::vector<GoldenRow> binary_rows_2 = {{0.800000011920929, 0.47058823880027323, 5, 17}};

}  // namespace
