// A recorded step that can be replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <tape/arena.hpp>
#include <tape/direct.hpp>
#include <tape/operators.hpp>
#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// Numbers of a tape's calls, and sizes of its memory.
struct TapeReport {
  std::size_t recorded = 0;      ///< operators that the step called
  std::size_t calls = 0;         ///< kernels that a replay calls
  std::size_t planned = 0;       ///< of these: write into given memory
  std::size_t direct = 0;        ///< of these: called without the dispatcher
  std::size_t own = 0;           ///< of these: kernels of danling
  std::size_t views = 0;         ///< operators replaced by address computation
  std::size_t dead = 0;          ///< operators whose result is unused
  std::size_t constants = 0;     ///< operators with the same result in each step
  std::size_t in_place = 0;      ///< results written over an argument
  std::int64_t arena_bytes = 0;  ///< planned memory
  std::int64_t sum_bytes = 0;    ///< size of the same results without sharing
};

/// Creates a CPU tensor over the memory of a storage.
/// @param offset  in elements, added to the layout's
at::Tensor tensor_over(c10::Storage storage, const Layout& layout, std::int64_t offset = 0);

/// The calls of one step on the CPU, in order, with arguments bound to fixed tensors and results placed in planned
/// memory. One replay at a time.
class Tape {
 public:
  /// @param recording  checked by reconcile()
  Tape(Recording recording, std::shared_ptr<Arena> arena);

  /// Executes the step: calls, host calls, gradients.
  /// @param inputs  with the recorded shapes, strides and dtypes
  /// @return the step's return values, in memory that is not reused while anyone holds them; empty if the replay ended
  /// early
  /// @throws exceptions of kernels and host calls; earlier effects remain, as in an eager step
  Tensors replay(std::span<const at::Tensor> inputs);
  /// Returns why the tape can no longer be replayed (a tensor of the program has another shape, an object no longer
  /// exists); empty if it can.
  std::string misfit() const;
  /// True if the last replay ended early because a guard failed. It may have changed only random states, buffers and
  /// accumulated gradients.
  bool left_early() const { return left_early_; }
  /// True if a replay may end early.
  bool has_guards() const { return has_guards_; }

  /// Releases outputs that are kept for reuse by the next replay and are larger than `kept_bytes`.
  void forget_outputs(std::size_t kept_bytes = 0);

  /// True if the tape reads a tensor of the program without a name, which the program may replace.
  bool reads_unnamed() const;
  /// Generators from which the step draws.
  const std::vector<at::Generator>& generators() const { return generators_; }
  /// Returns the outside tensors that calls change in place, and `buffers`, which kernels may change without declaring
  /// it.
  Tensors written(std::span<const at::Tensor> inputs, const Tensors& buffers);

  const Recording& recording() const { return recording_; }
  const TapeReport& report() const { return report_; }
  /// Enables timing of each call in later replays.
  void measure(bool on);
  /// "Float [64, 784], Long [64]"
  std::string batch_text() const;
  /// Returns a table of the calls, with measured times.
  std::string text() const;

 private:
  friend class Checker;

  enum class Memory { bound, constant, planned, adopted, output };
  struct Slot {
    c10::intrusive_ptr<c10::StorageImpl> storage;  ///< storage of the tape's tensors
    Memory memory = Memory::bound;
    std::size_t offset = 0;                                   ///< offset in the arena
    const void* data = nullptr;                               ///< current address
    c10::intrusive_ptr<c10::StorageImpl> owner = {};          ///< owner of memory that is not only the tape's
    std::vector<std::pair<int, at::Tensor>> handed_out = {};  ///< value and tensor over `owner`, held by the program
  };
  struct Step {
    c10::OperatorHandle op;
    Kernel kernel = {};  ///< replaces `op` if set
    std::vector<c10::IValue> arguments = {};
    std::vector<int> adopts = {};     ///< result values whose memory the tape takes over; -1: none
    std::vector<int> allocates = {};  ///< outputs that this step writes first
    std::vector<int> frees = {};      ///< adopted storages that this step reads last
    bool with_gradients = false;
    bool own = false;
    bool guard = false;
    std::size_t call = 0;
    double seconds = 0.0;
  };
  struct Piece {
    std::size_t begin = 0, end = 0;  ///< range of steps
    int host_call = -1;              ///< called after these steps
  };

  // tape_build.cpp
  std::vector<bool> needed_calls(const std::vector<bool>& escapes) const;
  std::vector<bool> escaping_storages() const;
  void make_tensors();
  void list_generators();
  void build(const std::vector<bool>& needed, const std::vector<bool>& escapes);
  std::vector<int> fresh_values(std::size_t call) const;
  bool computes_nothing(const Call& call, const std::vector<int>& fresh) const;
  bool add_constant(std::size_t call, const std::vector<int>& fresh, const std::vector<bool>& escapes);
  void add_step(std::size_t call, const std::vector<int>& fresh, const std::vector<bool>& escapes);
  void bind_arguments(Step& step, const std::optional<OutForm>& form) const;
  void choose_kernel(Step& step, bool in_given_memory);
  c10::IValue bound(const Argument& argument) const;

  // tape_plan.cpp
  /// Steps that read or write a storage, in order; per storage.
  using Touches = std::vector<std::vector<std::size_t>>;
  Touches touches() const;
  void plan(const std::vector<bool>& escapes);
  std::vector<std::vector<int>> allot(const Touches& touches, const std::vector<bool>& escapes);
  std::vector<int> group(const std::vector<std::vector<int>>& made_at, const Touches& touches,
                         std::vector<Lifetime>& lifetimes);
  int replaceable(std::size_t step, const std::vector<int>& group_of, const Touches& touches,
                  const std::vector<Lifetime>& lifetimes) const;
  bool is_read_once(const Call& call, int value) const;
  void list_sources();

  // tape_replay.cpp
  void begin(std::span<const at::Tensor> inputs);
  void bind(int storage, const void* data);
  void bind_source(int storage);
  void bind_variables();
  bool run(const Piece& piece);
  void run_boxed(const Step& step);
  void adopt(const Step& step);
  void allocate(int storage);
  at::Tensor hand_out(int value);
  const at::Tensor& source_of(int storage) const;
  void set_gradients(const HostCall& call);
  Tensors outputs();

  Recording recording_;
  std::shared_ptr<Arena> arena_;
  const void* arena_base_ = nullptr;
  std::vector<Slot> slots_;          // per storage
  std::vector<at::Tensor> tensors_;  // per value
  std::vector<Step> steps_;
  std::vector<Piece> pieces_;
  std::vector<int> planned_, once_, each_piece_;  // storages, by the time at which they are bound
  std::span<const at::Tensor> inputs_;
  torch::jit::Stack stack_;
  std::vector<at::Generator> generators_;
  TapeReport report_;
  std::size_t measured_ = 0;
  bool measures_ = false, has_guards_ = false, left_early_ = false;
};

}  // namespace danling::inline v0::tape
