"""VAFL and split learning, slowly: the page of the paper in plain PyTorch, to be read beside it.

T. Chen, X. Jin, Y. Sun, W. Yin, "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020: Algorithms 1 and 2,
equations (2) to (7), the delay rules of section 2.3. Autograd, torch.optim, float64, and Python dicts for the table. A
twin is told who uploaded which rows in which order, and works out every number and every answer by itself.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# --- models and updates -----------------------------------------------------------------------------------------


def dense(sizes: Sequence[int], relu_at_end: bool = False) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers if relu_at_end else layers[:-1])).double()


class SumThen(nn.Module):
    """Adds the parties' embeddings, which all have the same width, and goes on with `rest` (or a bias)."""

    def __init__(self, width: int, rest: nn.Module | None = None) -> None:
        super().__init__()
        self.width = width
        self.rest = rest
        if rest is None:
            self.bias = nn.Parameter(torch.zeros(width, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        total = torch.zeros(len(inputs), self.width, dtype=inputs.dtype)
        for part in torch.split(inputs, self.width, 1):
            total = total + part
        return total + self.bias if self.rest is None else self.rest(total)


def take_weights(module: nn.Module, other: nn.Module) -> None:
    """The other module's parameters, in their order."""
    with torch.no_grad():
        for own, given in zip(module.parameters(), other.parameters(), strict=True):
            own.copy_(given)


@dataclass(frozen=True)
class Rule:
    """How parameters are updated; l2 and l1 are the paper's r(θ_m)."""

    name: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    l2: float = 0.0
    l1: float = 0.0
    planned: int = 0  # T, of "scale-free", and of a rate that falls
    coordinates: int = 0  # d, of dpzv, where directions are drawn among fewer than there are weights
    falls: bool = False

    def optimiser(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.name == "adam" and not self.falls:
            return torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.l2)
        if self.name in ("adam", "scale-free"):
            return Falling(parameters, self)
        momentum = self.momentum if self.name == "momentum" else 0.0
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=momentum, weight_decay=self.l2)

    def rate(self, weights: int, step: int) -> float:
        """η of step t, the first is 0. "scale-free": R √(3 / dT) (1 − t/T), and a twentieth at the least."""
        if self.name != "scale-free":
            return self.learning_rate * max(1 - step / self.planned, 0.05) if self.falls else self.learning_rate
        first = min(0.1, self.learning_rate * (3 / ((self.coordinates or weights) * self.planned)) ** 0.5)
        return first * max(1 - step / self.planned, 0.05)

    def proximal_step(self, parameters: list[nn.Parameter], rate: float | None = None) -> None:
        """argmin_u ‖u − θ‖²/2 + η l1 ‖u‖₁: "when r is nonsmooth … an extra proximal step"."""
        threshold = (self.learning_rate if rate is None else rate) * self.l1
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(parameter.sign() * (parameter.abs() - threshold).clamp(min=0))


class Falling(torch.optim.Adam):
    """Adam whose rate falls; "scale-free" has no stabiliser, and its rate follows from d and T."""

    def __init__(self, parameters: list[nn.Parameter], rule: Rule) -> None:
        super().__init__(parameters, lr=1.0, eps=1e-8 if rule.name == "adam" else 1e-30, weight_decay=rule.l2)
        self.rule, self.made = rule, 0
        self.d = sum(parameter.numel() for parameter in parameters)

    def step(self) -> None:  # type: ignore[override]
        self.param_groups[0]["lr"] = self.rule.rate(self.d, self.made)
        super().step()
        self.made += 1


def mean_loss(task: str, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    if weights is not None:  # one row after the other, each as often as it weighs
        rows = [mean_loss(task, outputs[i : i + 1], targets[i : i + 1]) * weights[i] for i in range(len(targets))]
        return torch.stack(rows).sum() / len(rows)
    if task == "multiclass":
        return functional.cross_entropy(outputs, targets)
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double())
    return functional.mse_loss(outputs[:, 0], targets.double())


def weights_of_rows(labels: list[int], own: list[float], class_weight: str | dict[str, float], mean_1: bool) -> Tensor:
    """What each training row weighs: its own weight times that of its class, which is 0, 1, … by its place."""
    total = []
    for label, weight in zip(labels, own, strict=True):
        of_class = 1.0
        if class_weight == "balanced":
            of_class = sum(own) / sum(w for other, w in zip(labels, own, strict=True) if other == label)
        elif isinstance(class_weight, dict):
            of_class = class_weight.get(str(label), 1.0)
        total.append(weight * of_class)
    mean = sum(total) / len(total) if mean_1 else 1.0
    return torch.tensor([weight / mean for weight in total], dtype=torch.float64)


# --- Algorithm 1, lines 3–7 -------------------------------------------------------------------------------------


class DroppingColumns:
    """Columns of which a row, whenever it is looked at, is absent with this chance: zeros, and 1 at the end."""

    def __init__(self, columns: Tensor, share: float, chance: torch.Generator) -> None:
        self.columns, self.share, self.chance = columns, share, chance

    def double(self) -> "DroppingColumns":
        return DroppingColumns(self.columns.double(), self.share, self.chance)

    def __getitem__(self, rows: list[int]) -> Tensor:
        drawn = torch.rand(len(rows), generator=self.chance).tolist()
        absent = torch.tensor([0.0] * (self.columns.shape[1] - 1) + [1.0], dtype=torch.float64)
        return torch.stack(
            [absent if chance < self.share else self.columns[i] for i, chance in zip(rows, drawn, strict=True)]
        )


class FeatureTwin:
    """Client m."""

    def __init__(self, bottom: nn.Module, columns: Tensor, rule: Rule) -> None:
        self.bottom = bottom
        self.columns = columns.double()
        self.rule = rule
        self.optimiser = rule.optimiser(list(bottom.parameters()))
        self.waiting: dict[int, tuple[nn.Module, Tensor]] = {}

    def embed(self, rows: Sequence[int]) -> Tensor:
        """h_{n,m} for these rows, at the θ_m of now."""
        return self.bottom(self.columns[list(rows)]).detach()

    def upload(self, exchange: int, rows: Sequence[int]) -> Tensor:
        """Line 5; the model is kept as it is, because (4b) takes the gradient at the θ_m that was uploaded from."""
        model_then = deepcopy(self.bottom)
        embedding = model_then(self.columns[list(rows)])
        self.waiting[exchange] = (model_then, embedding)
        return embedding.detach()

    def apply(self, exchange: int, gradient: Tensor) -> None:
        """Line 7, equation (7a): θ_m ← θ_m − η (∇_θ h) (∇_h ℓ) − η ∇r(θ_m)."""
        model_then, embedding = self.waiting.pop(exchange)
        embedding.backward(gradient)
        for parameter, parameter_then in zip(self.bottom.parameters(), model_then.parameters(), strict=True):
            parameter.grad = parameter_then.grad
        self.optimiser.step()
        self.rule.proximal_step(list(self.bottom.parameters()), self.optimiser.param_groups[0]["lr"])


# --- Algorithm 1, lines 8–13; Algorithm 2; section 2.3 ----------------------------------------------------------


@dataclass
class Upload:
    sender: str
    exchange: int
    rows: list[int]
    embedding: Tensor


@dataclass
class Server:
    """What both servers have: θ_0, the labels, and the last known embedding of every party and row.

    `own` and `own_columns` belong to a label party that holds columns: its own bottom model is part of θ_0, its
    embedding is always fresh.
    """

    top: nn.Module
    labels: Tensor
    task: str
    rule: Rule
    widths: dict[str, int]
    own: nn.Module | None = None
    own_columns: Tensor | None = None
    weights: Tensor | None = None  # what each row counts for in the loss
    table: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    replies: list[tuple[str, int, Tensor]] = field(default_factory=list)  # (party, exchange, gradient) to be sent
    refreshes: list[tuple[str, list[int]]] = field(default_factory=list)  # (party, rows) to be asked for

    def __post_init__(self) -> None:
        self.optimiser = self.rule.optimiser(self.parameters())

    def parameters(self) -> list[nn.Parameter]:
        return [*self.top.parameters(), *(self.own.parameters() if self.own is not None else [])]

    def last_known(self, party: str, rows: list[int]) -> Tensor:
        """Zeros for a row that this party has never sent."""
        nothing = torch.zeros(self.widths[party], dtype=torch.float64)
        return torch.stack([self.table.get((party, row), nothing) for row in rows])

    def loss(self, rows: list[int], embeddings: list[Tensor]) -> Tensor:
        """ℓ(θ_0, h_1, …, h_M; y), the mean over the rows."""
        inputs = list(embeddings)
        if self.own is not None and self.own_columns is not None:
            inputs.append(self.own(self.own_columns.double()[rows]))
        weights = None if self.weights is None else self.weights[rows]
        return mean_loss(self.task, self.top(torch.cat(inputs, 1)), self.labels[rows], weights)


@dataclass
class AsynchronousServer(Server):
    """Updates once it has uploads of t distinct clients: t = 1 is Algorithm 1, t > 1 is Algorithm 2."""

    t: int = 1
    D: int = 0  # section 2.3, rule 1; 0: unbounded
    last_exchange: int = 0
    k: int = 0  # uploads answered so far
    written: dict[tuple[str, int], int] = field(default_factory=dict)  # the k at which the table's entry was written
    waiting: list[Upload] = field(default_factory=list)
    update: list[Upload] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)  # numbers of the requests that are not answered yet
    asked: int = 0
    delays: list[int] = field(default_factory=list)  # τ of everything that was used of other parties
    too_late: int = 0  # of these, how many were above D

    def receive(self, upload: Upload) -> None:
        if self.k < self.last_exchange:
            self.waiting.append(upload)
            self.go_on()

    def receive_fresh(self, request: int, party: str, rows: list[int], embedding: Tensor) -> None:
        self.write(party, rows, embedding)
        self.awaited.discard(request)
        self.go_on()

    def stop_waiting(self) -> None:
        """The refreshes took too long."""
        self.awaited.clear()
        self.go_on()

    def write(self, party: str, rows: list[int], embedding: Tensor) -> None:
        for row, vector in zip(rows, embedding, strict=True):
            self.table[party, row] = vector
            self.written[party, row] = self.k

    def delay(self, party: str, row: int, k: int) -> int:
        """Equation (5), counted from the exchange that wrote the embedding."""
        return k - self.written.get((party, row), 0)

    def go_on(self) -> None:
        while self.k < self.last_exchange and not self.awaited:
            if not self.update:
                first_of_each: dict[str, Upload] = {}
                for upload in self.waiting:
                    if len(first_of_each) < self.t:
                        first_of_each.setdefault(upload.sender, upload)
                if len(first_of_each) < self.t:
                    return
                self.update = list(first_of_each.values())
                self.waiting = [upload for upload in self.waiting if all(upload is not one for one in self.update)]
                self.ask_for_what_is_too_old()
            if not self.awaited:
                self.answer()

    def ask_for_what_is_too_old(self) -> None:
        """ "whenever the delay exceeds D, the server immediately queries fresh h_{n,m} before continuing"."""
        if self.D == 0:
            return
        k_then = self.k + len(self.update)
        needed = sorted({row for upload in self.update for row in upload.rows})
        for party in self.widths:
            brought = {row for upload in self.update if upload.sender == party for row in upload.rows}
            old = [row for row in needed if row not in brought and self.delay(party, row, k_then) > self.D]
            if old:
                self.asked += 1
                self.awaited.add(self.asked)
                self.refreshes.append((party, old))

    def answer(self) -> None:
        """Lines 9, 10, 12 and 13: every gradient at the same θ_0, then one update of θ_0 by their mean."""
        uploads, self.update = self.update, []
        self.k += len(uploads)
        for upload in uploads:
            self.write(upload.sender, upload.rows, upload.embedding)
        self.optimiser.zero_grad()
        for upload in uploads:
            known = {party: self.last_known(party, upload.rows) for party in self.widths}
            known[upload.sender].requires_grad_()
            loss = self.loss(upload.rows, list(known.values()))
            (loss / len(uploads)).backward()  # adds to the gradients (4a) by θ_0
            gradient = known[upload.sender].grad  # (4b)'s second factor
            assert gradient is not None
            self.losses.append(loss.item())
            self.replies.append((upload.sender, upload.exchange, gradient * len(uploads)))
            others = [self.delay(party, row, self.k) for party in self.widths for row in upload.rows]
            others = _without_zeros(others, len(upload.rows))
            self.delays += others
            self.too_late += sum(delay > self.D for delay in others) if self.D else 0
        self.optimiser.step()  # (6)


def _without_zeros(delays: list[int], count: int) -> list[int]:
    """The sender's own rows were written just now: their zeros are no delay of another party."""
    left = sorted(delays)
    assert left[:count] == [0] * count
    return left[count:]


@dataclass
class SynchronousServer(Server):
    """Equations (2) and (3): all clients use the same rows, and nobody goes on before everybody is there."""

    here: dict[str, Upload] = field(default_factory=dict)

    def receive(self, upload: Upload) -> None:
        self.here[upload.sender] = upload
        if len(self.here) < len(self.widths):
            return
        arrived, self.here = self.here, {}
        embeddings = {party: arrived[party].embedding.clone().requires_grad_() for party in self.widths}
        self.optimiser.zero_grad()
        loss = self.loss(upload.rows, list(embeddings.values()))
        loss.backward()
        self.losses.append(loss.item())
        for party in arrived:
            gradient = embeddings[party].grad
            assert gradient is not None
            self.replies.append((party, arrived[party].exchange, gradient))
        self.optimiser.step()


# --- no distance at all -----------------------------------------------------------------------------------------


def plain_loop(
    bottoms: dict[str, nn.Module],
    columns: dict[str, Tensor],
    top: nn.Module,
    labels: Tensor,
    task: str,
    batches: Sequence[Sequence[int]],
    learning_rate: float,
    look: Callable[[int, dict[str, Tensor]], None],
) -> None:
    """Stochastic gradient descent on the joined model; `look` sees every step and its embeddings with gradients."""
    parameters = [*top.parameters(), *(weight for bottom in bottoms.values() for weight in bottom.parameters())]
    optimiser = torch.optim.SGD(parameters, lr=learning_rate)
    for step, rows in enumerate(batches, start=1):
        embeddings = {party: bottom(columns[party].double()[list(rows)]) for party, bottom in bottoms.items()}
        for embedding in embeddings.values():
            embedding.retain_grad()
        loss = mean_loss(task, top(torch.cat(list(embeddings.values()), 1)), labels[list(rows)])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        look(step, embeddings)
