// recorded_inputs(): the inputs of an operator that RecordFunction reports.
#pragma once

#include <ATen/record_function.h>

namespace danling::inline v0::nn {

/// Returns the inputs in a start callback that needs inputs. The only caller of `RecordFunction::inputs()`, which in a
/// debug build checks a member that LibTorch's own libraries, release builds, do not have.
c10::ArrayRef<const c10::IValue> recorded_inputs(const at::RecordFunction& function);

}  // namespace danling::inline v0::nn
