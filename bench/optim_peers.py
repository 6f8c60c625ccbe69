"""The Python side of bench/optim.cpp: optimizer steps on command.

Reads one command per line from stdin and answers each with one line: `ok <number>` or `error <text>`. WORK is a JSON
object: `type`, `options`, `how` (loop, foreach or fused), `shapes`, `dtype`, `threads`, `max_norm` (0: no clipping).

  value WORK        the mean movement of an element in three steps, times a million
  time CALLS WORK   seconds per step
  ema CALLS WORK    seconds per update of an average of the parameters
  drop              frees everything
"""

import json
import os
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch


class Foreach(torch.optim.Optimizer):
    """Lion and LAMB, which torch.optim lacks, with its multi-tensor operations."""

    def __init__(self, params, **options):
        super().__init__(params, {**self.defaults_, **options})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"m": torch.zeros_like(param), "v": torch.zeros_like(param)}
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            params = group["params"]
            grads = [param.grad for param in params]
            first = [self.state[param]["m"] for param in params]
            second = [self.state[param]["v"] for param in params]
            self.update(group, params, grads, first, second)


class Lion(Foreach):
    defaults_ = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}

    def update(self, group, params, grads, first, _):
        beta1, beta2 = group["betas"]
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        update = torch._foreach_lerp(first, grads, 1 - beta1)
        torch._foreach_sign_(update)
        torch._foreach_add_(params, update, alpha=-group["lr"])
        torch._foreach_lerp_(first, grads, 1 - beta2)


class Lamb(Foreach):
    defaults_ = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}

    def update(self, group, params, grads, first, second):
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
        below = torch._foreach_div(second, 1 - beta2**self.steps)
        torch._foreach_sqrt_(below)
        torch._foreach_add_(below, group["eps"])
        update = torch._foreach_div(first, 1 - beta1**self.steps)
        torch._foreach_div_(update, below)
        torch._foreach_add_(update, params, alpha=group["weight_decay"])
        sizes, moves = torch._foreach_norm(params), torch._foreach_norm(update)
        torch._foreach_div_(sizes, moves)
        torch._foreach_mul_(update, sizes)
        torch._foreach_add_(params, update, alpha=-group["lr"])


class Both:
    """Muon for matrices, AdamW for the rest, as torch.optim.Muon asks for."""

    def __init__(self, params, how, **options):
        rest = [param for param in params if param.ndim != 2]
        self.parts = [torch.optim.Muon([param for param in params if param.ndim == 2], **options)]
        if rest:
            self.parts.append(torch.optim.AdamW(rest, **how))

    def step(self):
        for part in self.parts:
            part.step()


def irregular(count, phase, dtype):
    return torch.arange(count, dtype=torch.float64).mul_(1.7).add_(phase).sin_().to(dtype)


class Work:
    def __init__(self, work):
        dtype = getattr(torch, work["dtype"])
        self.starts = [irregular(torch.Size(s).numel(), i, dtype).reshape(s) for i, s in enumerate(work["shapes"])]
        self.params = [torch.nn.Parameter(start.clone()) for start in self.starts]
        self.grads = [irregular(p.numel(), i + 0.5, dtype).reshape(p.shape) for i, p in enumerate(self.params)]
        for param, grad in zip(self.params, self.grads):
            param.grad = grad.clone()
        self.max_norm = work["max_norm"]
        self.how = work["how"]
        how = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[work["how"]]
        kind, options = work["type"], work["options"]
        if kind == "Muon":
            self.optimizer = Both(self.params, how, **options)
        elif kind in ("Lion", "Lamb"):
            if work["how"] != "foreach":
                raise LookupError(f"no {work['how']} of {kind}")
            self.optimizer = {"Lion": Lion, "Lamb": Lamb}[kind](self.params, **options)
        else:
            self.optimizer = getattr(torch.optim, kind)(self.params, **options, **how)

    def step(self):
        if self.max_norm:
            torch.nn.utils.clip_grad_norm_(self.params, self.max_norm, foreach=self.how != "loop")
        self.optimizer.step()

    def refill(self):
        for param, grad in zip(self.params, self.grads):
            param.grad.copy_(grad)

    def time(self, calls):
        if not self.max_norm:
            begin = time.perf_counter()
            for _ in range(calls):
                self.step()
            return (time.perf_counter() - begin) / calls
        total = 0
        for _ in range(calls):  # clipping changes the gradients
            self.refill()
            begin = time.perf_counter()
            self.step()
            total += time.perf_counter() - begin
        return total / calls

    def value(self):
        for _ in range(3):
            self.refill()
            self.step()
        moved = sum((p.detach().double() - s.double()).abs().sum().item() for p, s in zip(self.params, self.starts))
        return 1e6 * moved / sum(param.numel() for param in self.params)


class Ema:
    def __init__(self, work):
        dtype = getattr(torch, work["dtype"])
        self.params = [irregular(torch.Size(s).numel(), i, dtype).reshape(s) for i, s in enumerate(work["shapes"])]
        self.averages = [param.clone() for param in self.params]
        self.update = torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)

    def time(self, calls):
        begin = time.perf_counter()
        for _ in range(calls):
            self.update(self.averages, self.params, 0)
        return (time.perf_counter() - begin) / calls


def main():
    built = {}
    print("ok", flush=True)
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        try:
            answer = 0
            if command == "drop":
                built.clear()
            else:
                calls, text = rest.split(" ", 1) if command != "value" else (0, rest)
                work = json.loads(text)
                torch.set_num_threads(work["threads"])
                kind = Ema if command == "ema" else Work
                if command == "value":
                    answer = Work(work).value()
                else:
                    if (kind, text) not in built:
                        built[kind, text] = kind(work)
                        built[kind, text].time(1)
                    answer = built[kind, text].time(int(calls))
            print("ok", repr(answer), flush=True)
        except Exception as error:
            print("error", type(error).__name__, " ".join(str(error).split())[:200], flush=True)


main()
