// Arrays and tables in files; used by load() and save().
#pragma once

#include <filesystem>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

State load_npy(const std::filesystem::path& file);
State load_npz(const std::filesystem::path& file);
State load_table(const std::filesystem::path& file);
void save_npy(const State& object, const std::filesystem::path& file);
void save_npz(const State& object, const std::filesystem::path& file);
void save_table(const State& object, const std::filesystem::path& file);

}  // namespace danling::inline v0::detail
