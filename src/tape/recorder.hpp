// Records a step: the operators that it calls, below autograd.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// An Observer that is also called for backward passes and updates.
class StepObserver : public Observer {
 public:
  ~StepObserver() override;
  virtual void begin_backward() = 0;
  virtual void end_backward() = 0;
  /// As host_call, for a call that changes parameters.
  virtual void update(std::string name, std::function<void(const Tensors&)> again) = 0;
  /// Called before update() runs for the first time.
  virtual void before_update() = 0;
};

/// Tensors that a step uses and that outlive it.
struct StepTensors {
  Tensors inputs;                       ///< the batch
  std::vector<const at::Tensor*> live;  ///< tensor variables of the runner; they outlive the tape
  Tensors held;                         ///< parameters and buffers
  std::vector<std::string> names;       ///< names of `held`
};

/// Sets the observer of this thread for its lifetime.
class ObserverScope {
 public:
  explicit ObserverScope(Observer* observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  Observer* previous_;
};

/// While it lives, records the operators that this thread calls, and autograd's threads for it, and the host calls of
/// this thread.
class Recorder final : public StepObserver {
 public:
  /// @throws StateError when LibTorch's dispatch key is in use, or another recording is in progress in this process
  explicit Recorder(const StepTensors& surroundings);
  ~Recorder() override;  ///< also ends the recording if finish() was not called
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                 const ObjectLifetime* lifetime) override;
  void mark_unrecordable(std::string reason) override;
  void begin_backward() override;
  void end_backward() override;
  void update(std::string name, std::function<void(const Tensors&)> again) override;
  void before_update() override;

  /// @param outputs  the return values of the step
  Recording finish(const Tensors& outputs);

 private:
  struct Source {
    const char *begin, *end;
    int storage;
  };
  /// Makes this recording the only one of the process while it lives.
  struct Turn {
    explicit Turn(Recorder* recorder);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
  };
  static void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

  Call begin(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void end(Call call, const torch::jit::Stack& stack);
  void add_source(const at::Tensor& tensor, Origin origin, int source);
  int value_of(const at::Tensor& tensor);
  int storage_of(const at::Tensor& tensor, Layout& layout);
  int add_storage(Storage storage, const at::Tensor& tensor);
  Argument argument_of(const c10::IValue& value);
  void note_read(int storage, const at::Tensor& tensor);
  void note_held(const at::Tensor& tensor);
  void note_gradients();
  void check_shared(int storage, const at::Tensor& tensor, const Call& call);
  bool check_tensor(const at::Tensor& tensor, const Call& call);
  int value_to_keep(const at::Tensor& tensor, const std::string& place);

  Turn turn_{this};   // first member: destroyed last, and also if the constructor throws
  std::mutex mutex_;  // autograd runs deeply nested passes in other threads
  Recording recording_;
  Tensors gradients_;                                               // of held tensors, as recorded so far
  std::vector<const void*> memory_;                                 // data pointers of held tensors at the beginning of
                                                                    // the step
  std::vector<std::pair<at::Tensor, at::Tensor>> input_gradients_;  // inputs, and their gradients before the step
  std::unordered_map<const c10::StorageImpl*, std::vector<Source>> sources_;  // several tensors may share a storage
  std::unordered_map<const c10::StorageImpl*, int> made_;
  std::vector<std::vector<int>> values_of_;  // per storage
  bool backward_ = false;
  int after_ = -1;
  std::unique_ptr<ObserverScope> scope_;
  std::unique_ptr<c10::impl::IncludeDispatchKeyGuard> included_;
};

}  // namespace danling::inline v0::tape
