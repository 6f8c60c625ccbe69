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

/// Counts of a tape's calls, and sizes of its memory.
struct TapeReport {
  std::size_t recorded = 0;      ///< operators that the step called
  std::size_t calls = 0;         ///< kernels that a replay calls
  std::size_t planned = 0;       ///< of them that write into memory which they are given
  std::size_t direct = 0;        ///< of them without the dispatcher
  std::size_t own = 0;           ///< of them by kernels of danling
  std::size_t views = 0;         ///< operators that became addresses
  std::size_t dead = 0;          ///< operators whose result nobody reads
  std::size_t constants = 0;     ///< operators with the same result in each step
  std::size_t in_place = 0;      ///< results written over an argument
  std::int64_t arena_bytes = 0;  ///< planned memory
  std::int64_t sum_bytes = 0;    ///< of all results that lie there, without sharing
};

/// A tensor of the CPU over memory of a storage. @param offset  elements that are added to the layout's
at::Tensor tensor_over(c10::Storage storage, const Layout& layout, std::int64_t offset = 0);

/// The calls of one step in their order, with arguments bound to fixed tensors, and results to planned memory, on the
/// CPU. One replay at a time.
class Tape {
 public:
  /// @param recording  one that reconcile() accepts
  Tape(Recording recording, std::shared_ptr<Arena> arena);

  /// Computes the step: calls, host calls, gradients. @param inputs  of the shapes, strides and dtypes that were
  /// recorded. @return what the step returned, in memory that is not reused while somebody holds it; nothing where it
  /// ended early. @throws as the kernels and host calls do: what came before has happened, as in an eager step
  Tensors replay(std::span<const at::Tensor> inputs);
  /// Why it cannot be replayed any longer: a tensor of the program has another shape, an object is gone. Empty: it can.
  std::string misfit() const;
  /// Whether the last replay ended early, since a condition of the recorded step did not hold. Only random numbers,
  /// buffers and accumulated gradients may have changed then.
  bool left_early() const { return left_early_; }
  /// Whether a replay may end early.
  bool has_guards() const { return has_guards_; }

  /// Gives up the memory of results that it keeps for the next replay, where they are larger.
  void forget_outputs(std::size_t kept_bytes = 0);

  /// Whether it reads a tensor of the program that nobody has named: the program may replace it.
  bool reads_unnamed() const;
  /// Generators that it draws from.
  const std::vector<at::Generator>& generators() const { return generators_; }
  /// Tensors from outside that its calls change in place; and `buffers`, which kernels may change unseen.
  Tensors written(std::span<const at::Tensor> inputs, const Tensors& buffers);

  const Recording& recording() const { return recording_; }
  const TapeReport& report() const { return report_; }
  /// Measures the time of each call in the next replays.
  void measure(bool on);
  /// "Float [64, 784], Long [64]"
  std::string batch_text() const;
  /// A table of the calls, with the times that were measured.
  std::string text() const;

 private:
  friend class Checker;

  enum class Memory { bound, constant, planned, adopted, output };
  struct Slot {
    c10::intrusive_ptr<c10::StorageImpl> storage;  ///< what the tape's tensors show
    Memory memory = Memory::bound;
    std::size_t offset = 0;                                   ///< in the arena
    const void* data = nullptr;                               ///< where it is bound
    c10::intrusive_ptr<c10::StorageImpl> owner = {};          ///< of memory that is not the tape's alone
    std::vector<std::pair<int, at::Tensor>> handed_out = {};  ///< tensors over `owner`, by value
  };
  struct Step {
    c10::OperatorHandle op;
    Kernel kernel = {};  ///< called in place of `op`
    std::vector<c10::IValue> arguments = {};
    std::vector<int> adopts = {};     ///< values of the results that bring their memory; -1: none
    std::vector<int> allocates = {};  ///< outputs that it is the first to write
    std::vector<int> frees = {};      ///< adopted storages that it is the last to read
    bool with_gradients = false;
    bool own = false;
    bool guard = false;
    std::size_t call = 0;
    double seconds = 0.0;
  };
  struct Piece {
    std::size_t begin = 0, end = 0;  ///< steps
    int host_call = -1;              ///< after them
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
  /// Steps that read or write a storage, in their order; by storage.
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
  std::vector<Slot> slots_;          // by storage
  std::vector<at::Tensor> tensors_;  // by value
  std::vector<Step> steps_;
  std::vector<Piece> pieces_;
  std::vector<int> planned_, once_, each_piece_;  // storages, by when they are bound
  std::span<const at::Tensor> inputs_;
  torch::jit::Stack stack_;
  std::vector<at::Generator> generators_;
  TapeReport report_;
  std::size_t measured_ = 0;
  bool measures_ = false, has_guards_ = false, left_early_ = false;
};

}  // namespace danling::inline v0::tape
