// Settings of LibTorch's kernels that belong to the process: determinism and TF32.
#pragma once

#include <memory>
#include <optional>

namespace danling::inline v0::detail {

/// Deterministic algorithms of LibTorch, cuDNN and oneDNN, filled uninitialised memory, no benchmarks; for cuBLAS sets
/// CUBLAS_WORKSPACE_CONFIG unless the environment has it, which takes effect before the first product on a GPU.
void select_deterministic_kernels();

/// Changes the settings, for as long as the returned object lives. The first of several such objects saves the settings
/// before it; the last to be destroyed restores them.
/// @param tf32  for matrix products and convolutions on CUDA; nothing leaves it as it is
std::shared_ptr<void> change_kernel_settings(bool deterministic, std::optional<bool> tf32);

}  // namespace danling::inline v0::detail
