"""Writes nn_losses.json: values and gradients of losses by PyTorch and by published formulas, for tests/nn.

Run with torch installed: python tests/golden/nn_losses.py
"""

import json
import pathlib

import torch
import torch.nn.functional as F


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2.0):
    """torchvision.ops.sigmoid_focal_loss 0.21, without its reduction."""
    p = torch.sigmoid(inputs)
    ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma)
    if alpha >= 0:
        alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
        loss = alpha_t * loss
    return loss


def focal_loss(inputs, targets, gamma=2.0, weights=None):
    """Lin et al., Focal Loss for Dense Object Detection (2017), equation 5, with softmax."""
    p = torch.softmax(inputs, 1)
    p_t = p.gather(1, targets.unsqueeze(1)).squeeze(1)
    loss = -((1 - p_t) ** gamma) * torch.log(p_t)
    return loss if weights is None else loss * weights[targets]


def distillation(student, teacher, temperature):
    """Hinton et al., Distilling the Knowledge in a Neural Network (2015), section 2: T^2 KL(teacher || student)."""
    p = torch.softmax(teacher / temperature, 1)
    q = torch.softmax(student / temperature, 1)
    return (p * (p.log() - q.log())).sum(1) * temperature**2


def numbers(tensor):
    return [float(f"{x:.17g}") for x in tensor.detach().flatten().tolist()]


def case(kind, options, logits, target, values, divisor=None, **extra):
    """`values`: one per target of those that count; the mean divides by `divisor`, their number by default."""
    mean = values.sum() / (values.numel() if divisor is None else divisor)
    (gradient,) = torch.autograd.grad(mean, logits)
    return {
        "type": kind,
        "options": options,
        "logits": numbers(logits),
        "shape": list(logits.shape),
        "target": numbers(target),
        "target_shape": list(target.shape),
        "classes": not target.is_floating_point(),
        "sum": values.sum().item(),
        "mean": mean.item(),
        "gradient": numbers(gradient),
    } | {name: numbers(tensor) for name, tensor in extra.items()}


def main():
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return (2 * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()

    def classes(*shape, ignored=None):
        target = torch.randint(0, 5, shape, generator=generator)
        if ignored is not None:
            target.view(-1)[1] = target.view(-1)[-1] = ignored
        return target

    cases = []
    weights = torch.tensor([0.5, 2.0, 1.0, 0.25, 3.0], dtype=torch.float64)
    listed = weights.tolist()

    for shape in [(6, 5), (3, 5, 4)]:
        rest = (shape[0], *shape[2:])
        for options in [{}, {"label_smoothing": 0.1}, {"class_weights": listed},
                        {"label_smoothing": 0.3, "class_weights": listed}]:
            for ignored in [None, -100, 2]:
                logits, target = normal(*shape), classes(*rest, ignored=ignored)
                given = {**options, **({"ignore_index": 2} if ignored == 2 else {})}
                index = -100 if ignored is None else ignored
                used = {"weight": weights if "class_weights" in options else None, "ignore_index": index,
                        "label_smoothing": options.get("label_smoothing", 0.0)}
                values = F.cross_entropy(logits, target, reduction="none", **used)
                mean = F.cross_entropy(logits, target, **used)
                cases.append(case("cross_entropy", given, logits, target, values, divisor=(values.sum() / mean).item()))
                if "label_smoothing" not in options:
                    for gamma in [0.0, 0.5, 2.0]:
                        logits = normal(*shape)
                        flat = logits.movedim(1, -1).reshape(-1, 5)[target.flatten() != index]
                        values = focal_loss(flat, target[target != index], gamma, used["weight"])
                        cases.append(case("focal", {**given, "gamma": gamma}, logits, target, values))

    logits = normal(6, 5)
    target = torch.softmax(normal(6, 5), 1).detach()
    values = F.cross_entropy(logits, target, reduction="none", label_smoothing=0.1)
    cases.append(case("cross_entropy", {"label_smoothing": 0.1}, logits, target, values))

    for ignored in [None, -1]:
        for smoothing in [0.0, 0.2]:
            logits, target = normal(4, 3), torch.rand(4, 3, generator=generator, dtype=torch.float64).round()
            given = {} if ignored is None else {"ignore_index": ignored}
            if ignored is not None:
                target[0, 1] = target[3, 2] = ignored
            counted = target != -1
            smooth = target[counted] * (1 - smoothing) + smoothing / 2
            values = F.binary_cross_entropy_with_logits(logits[counted], smooth, reduction="none")
            cases.append(case("binary_cross_entropy", {**given, **({"label_smoothing": smoothing} if smoothing else {})},
                              logits, target, values))
        for alpha in [None, 0.25]:
            for gamma in [0.0, 0.5, 2.0]:
                logits, target = normal(4, 3), torch.rand(4, 3, generator=generator, dtype=torch.float64)
                target = target if gamma == 2.0 else target.round()  # soft targets too
                if ignored is not None:
                    target[0, 1] = target[3, 2] = ignored
                counted = target != -1
                values = sigmoid_focal_loss(logits[counted], target[counted], -1 if alpha is None else alpha, gamma)
                options = {"gamma": gamma, **({} if alpha is None else {"alpha": alpha})}
                given = {} if ignored is None else {"ignore_index": ignored}
                cases.append(case("sigmoid_focal", {**given, **options}, logits, target, values))

    for shape in [(6, 5), (3, 5, 4)]:
        for temperature in [1.0, 4.0]:
            for ignored in [None, -100]:
                logits, teacher = normal(*shape), normal(*shape)
                target = classes(shape[0], *shape[2:], ignored=ignored)
                values = distillation(logits, teacher, temperature)[target != -100]
                cases.append(case("distillation", {"temperature": temperature}, logits, target, values,
                                  teacher=teacher.detach()))

    path = pathlib.Path(__file__).with_name("nn_losses.json")
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in cases) + "\n]\n")
    print(f"wrote {len(cases)} cases to {path.name} with torch {torch.__version__}")


if __name__ == "__main__":
    main()
