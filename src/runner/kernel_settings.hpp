// Process-wide settings of LibTorch's kernels: determinism and TF32.
#pragma once

#include <memory>
#include <optional>

namespace danling::inline v0::detail {

/// Selects deterministic algorithms of LibTorch, cuDNN and oneDNN, fills uninitialised memory and disables benchmarks.
/// For cuBLAS it sets CUBLAS_WORKSPACE_CONFIG if unset, which must happen before the first matrix product on a GPU.
void select_deterministic_kernels();

/// Changes the settings for the lifetime of the returned object. The first of several such objects saves the previous
/// settings; the last to be destroyed restores them.
/// @param tf32  for matrix products and convolutions on CUDA; empty: unchanged
std::shared_ptr<void> change_kernel_settings(bool deterministic, std::optional<bool> tf32);

}  // namespace danling::inline v0::detail
