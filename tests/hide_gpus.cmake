# ctest reads this before the tests. Many of them fork processes, which CUDA does not survive, or start more processes than a
# machine has GPUs. Tests labelled cuda undo it.
set(ENV{CUDA_VISIBLE_DEVICES} "")
