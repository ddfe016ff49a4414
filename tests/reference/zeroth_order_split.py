"""The zeroth-order algorithms, slowly: `cascaded`, `zoo`, `zoo-sync`, `czofo` and `dpzv` in plain float64 PyTorch.

G. Wang et al., "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization", 2023,
Algorithm 1 and Appendix B; the DPZV paper, Algorithm 1. The asynchronous schedule is that of first_order_split.py.

A direction is in no message, so a twin cannot be told it: it draws its own (zeroth_order_looks.py), from a generator
that was seeded for the same party and purpose, in the same order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from first_order_split import AsynchronousServer, FeatureTwin, Rule, Server, SynchronousServer, Upload
from torch import Tensor, nn
from torch.nn import functional
from zeroth_order_looks import Looks, layers_of, moved, put_vector, vector_of

Loss = Callable[[], Tensor]
GRID = 2.0**-20  # of dpzv's weights and moves


def estimate_by_layers(
    server: Server, looks: Looks, directions: torch.Generator, rows: list[int], known: Any
) -> Tensor:
    """Row i looks along u_ij from what each layer gives for it; by a layer's weights, Σ_i g_i x_iᵀ."""
    layers = layers_of(server.top, server.own)
    entered: dict[nn.Module, Tensor] = {}
    hooks = [layer.register_forward_pre_hook(lambda own, inputs: entered.update({own: inputs[0]})) for layer in layers]
    here = row_losses(server, rows, known).detach()
    for hook in hooks:
        hook.remove()
    sizes = [layer.out_features for layer in layers]
    looked = looks.draw(directions, looks.q * len(rows), sum(sizes)).split(len(rows))
    near = []
    for u in looked:
        for move in looks.around(u):
            with moved(layers, move.split(sizes, 1)):
                near.append(row_losses(server, rows, known).detach())
    gradients = []
    for layer, by_layer in zip(layers, (looks.estimate(here, near, looked) / len(rows)).split(sizes, 1), strict=True):
        by_weight = [torch.outer(g, x) for g, x in zip(by_layer, entered[layer].detach(), strict=True)]
        gradients += [torch.stack(by_weight).sum(0), by_layer.sum(0)]
    return vector_of(gradients)


# --- feature parties --------------------------------------------------------------------------------------------


class LookingTwin(FeatureTwin):
    """Client m of `cascaded`, `zoo` and `zoo-sync`: lines 3–7."""

    def __init__(self, bottom: nn.Module, columns: Tensor, rule: Rule, looks: Looks, directions: torch.Generator):
        super().__init__(bottom, columns, rule)
        self.looks = looks
        self.directions = directions
        self.w = nn.Parameter(vector_of(list(bottom.parameters())))
        self.optimiser = rule.optimiser([self.w])
        self.looked: dict[int, list[Tensor]] = {}

    def at(self, vector: Tensor, rows: Sequence[int]) -> Tensor:
        """F(vector; x_I); the module is left at w."""
        put_vector(list(self.bottom.parameters()), vector)
        embedding = self.embed(rows)
        put_vector(list(self.bottom.parameters()), self.w.detach())
        return embedding

    def look(self, exchange: int, rows: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        w = self.w.detach()
        self.looked[exchange] = list(self.looks.draw(self.directions, self.looks.q, w.numel()))
        moves = [move for u in self.looked[exchange] for move in self.looks.around(u)]
        return self.at(w, rows), [self.at(w + move, rows) for move in moves]

    def take(self, exchange: int, losses: Tensor) -> None:
        """Equation (3): w ← w − η φ(d)/μ (ĥ − h) u."""
        self.step(self.looks.estimate(losses[0], list(losses[1:]), self.looked.pop(exchange)))

    def step(self, gradient: Tensor) -> None:
        self.w.grad = gradient
        self.optimiser.step()
        self.rule.proximal_step([self.w], self.optimiser.param_groups[0]["lr"])
        put_vector(list(self.bottom.parameters()), self.w.detach())


Passed = list[tuple[Tensor, Tensor]]  # of each wide layer: what goes into it, and which units no ReLU silences


class WideTwin(LookingTwin):
    """The same where layers have more inputs than a batch has rows: row i moves what such a layer gives by ‖x_i‖ v_i,
    but of units that a ReLU silences for it."""

    def __init__(self, batch: int, *given: Any) -> None:
        super().__init__(*given)
        self.wide = [layer for layer in layers_of(self.bottom) if layer.in_features > batch]
        self.passed: dict[int, Passed] = {}

    def by_rows(self, rows: int) -> list[int]:
        """How many numbers are drawn for each wide layer."""
        return [rows * layer.out_features for layer in self.wide]

    def others(self) -> list[int]:
        """How many parameters each layer has besides."""
        own = [[layer.bias] if layer in self.wide else list(layer.parameters()) for layer in layers_of(self.bottom)]
        return [sum(parameter.numel() for parameter in some) for some in own]

    def pass_through(self, rows: Sequence[int]) -> Passed:
        found: Passed = []
        x = self.columns[list(rows)]
        leaves = list(self.bottom)  # type: ignore[call-overload]
        for place, leaf in enumerate(leaves):
            entered, x = x, leaf(x).detach()
            if leaf in self.wide:
                silences = leaves[place + 1 :] and isinstance(leaves[place + 1], nn.ReLU)
                found.append((entered, (x > 0).double() if silences else torch.ones_like(x)))
        return found

    def drawn(self, rows: int) -> list[Tensor]:
        return list(self.looks.draw(self.directions, self.looks.q, sum(self.by_rows(rows) + self.others())))

    def look(self, exchange: int, rows: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        self.looked[exchange], self.passed[exchange] = self.drawn(len(rows)), self.pass_through(rows)
        moves = [move for u in self.looked[exchange] for move in self.looks.around(u)]
        beside = [self.beside(rows, move, self.passed[exchange]) for move in moves]
        return self.at(self.w.detach(), rows), beside

    def parted(self, u: Tensor, rows: int) -> tuple[list[Tensor], Tensor]:
        """v of every row for each wide layer, and the direction of all other parameters."""
        sizes = self.by_rows(rows)
        *by_layer, rest = u.split([*sizes, u.numel() - sum(sizes)])
        return [v.view(rows, -1) for v in by_layer], rest

    def laid_out(self, by_weight: list[Tensor], rest: Tensor) -> Tensor:
        """In the order of all parameters: of each wide layer's weights what is given for them."""
        left, rests, whole = list(by_weight), list(rest.split(self.others())), []
        for layer in layers_of(self.bottom):
            whole += [left.pop(0).reshape(-1)] if layer in self.wide else []
            whole.append(rests.pop(0))
        return torch.cat(whole)

    def beside(self, rows: Sequence[int], move: Tensor, passed: Passed) -> Tensor:
        by_layer, rest = self.parted(move, len(rows))
        moves = [
            entered.square().sum(1, keepdim=True).sqrt() * v * kept
            for v, (entered, kept) in zip(by_layer, passed, strict=True)
        ]
        still = [torch.zeros(layer.weight.numel()) for layer in self.wide]
        with moved(self.wide, moves):
            return self.at(self.w.detach() + self.laid_out(still, rest), rows)

    def of_weights(self, u: Tensor, passed: Passed, stretched: bool = False) -> Tensor:
        """Σ_i (x_i/‖x_i‖) v_iᵀ, as (in, out), of wide layers; stretched, √(inputs/rows) times that."""
        rows = len(passed[0][0])
        by_layer, rest = self.parted(u, rows)
        by_weight = []
        for v, (entered, kept) in zip(by_layer, passed, strict=True):
            outer = [torch.outer(x / x.norm(), own) for x, own in zip(entered, v * kept, strict=True) if x.any()]
            total = torch.stack([*outer, torch.zeros(entered.shape[1], v.shape[1])]).sum(0)
            by_weight.append(total * math.sqrt(entered.shape[1] / rows) if stretched else total)
        return self.laid_out(by_weight, rest)

    def take(self, exchange: int, losses: Tensor) -> None:
        looked, passed = self.looked.pop(exchange), self.passed.pop(exchange)
        estimate = self.looks.estimate(losses[0], list(losses[1:]), looked)
        self.step(self.of_weights(estimate, passed))


class EmbeddingTwin(FeatureTwin):
    """A client of `czofo`: looks around its embedding, row by row, and goes on by the chain rule."""

    def __init__(self, bottom: nn.Module, columns: Tensor, rule: Rule, looks: Looks, directions: torch.Generator):
        super().__init__(bottom, columns, rule)
        self.looks = looks
        self.directions = directions
        self.looked: dict[int, list[Tensor]] = {}

    def look(self, exchange: int, rows: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        h = self.upload(exchange, rows)
        learns = torch.ones_like(h)
        if isinstance(list(self.bottom.modules())[-1], nn.ReLU):  # nothing is learnt where it gives 0
            learns = (h > 0).double()
        self.looked[exchange] = [learns * self.looks.draw(self.directions, *h.shape) for _ in range(self.looks.q)]
        return h, [h + move for u in self.looked[exchange] for move in self.looks.around(u)]

    def take(self, exchange: int, losses: Tensor) -> None:
        estimate = self.looks.estimate(losses[0], list(losses[1:]), self.looked.pop(exchange))
        self.apply(exchange, estimate / losses.shape[1])  # of the mean of the rows' losses


class GridTwin(LookingTwin):
    """A client of `dpzv`: both ways, on a grid. A direction has a seed; seeds come from the party's generator."""

    def __init__(self, bottom: nn.Module, columns: Tensor, rule: Rule, looks: Looks, directions: torch.Generator):
        super().__init__(bottom, columns, rule, looks, directions)
        put_vector(list(bottom.parameters()), _to_grid(self.w.detach()))
        self.w = nn.Parameter(vector_of(list(bottom.parameters())))
        self.slopes: list[float] = []

    def look(self, exchange: int, rows: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """At w, then on the one side along every direction, then on the other."""
        w = self.w.detach()
        self.looked[exchange] = []
        for _ in range(self.looks.q):
            seed = int(torch.randint(2**62, (), generator=self.directions))
            self.looked[exchange] += self.looks.draw(torch.Generator().manual_seed(seed), 1, w.numel())
        moves = [_to_grid(self.looks.mu * u) for u in self.looked[exchange]]
        return self.at(w, rows), [self.at(w + side * move, rows) for side in (1, -1) for move in moves]

    def take_slopes(self, exchange: int, slopes: Sequence[float]) -> None:
        """Equation (9): w ← w − η mean_j Δ_j u_j; scale-free, w ← w − η Σ_j (Δ_j/s_j) u_j / √q, where s_j² is a
        weighted mean of all Δ² so far, that of direction j among them."""
        directions = self.looked.pop(exchange)
        q = len(directions)
        assert len(slopes) == q
        w = self.w.detach()
        rate = self.rule.rate(w.numel(), len(self.slopes) // q)
        w = _to_grid(w * (1 - rate * self.rule.l2))
        for slope, u in zip(slopes, directions, strict=True):
            self.slopes.append(slope)
            length = slope / q
            if self.rule.name == "scale-free":
                shares = [0.99**age for age in range(len(self.slopes))]
                squares = [share * one**2 for share, one in zip(shares, reversed(self.slopes), strict=True)]
                length = slope / math.sqrt(sum(squares) / sum(shares)) / math.sqrt(q) if any(squares) else 0.0
            w = w - _to_grid(rate * length * u)
        threshold = round(rate * self.rule.l1 / GRID) * GRID
        w = w.sign() * (w.abs() - threshold).clamp(min=0)
        self.w = nn.Parameter(w)
        put_vector(list(self.bottom.parameters()), w)


class WideGridTwin(WideTwin, GridTwin):
    """A client of `dpzv` with wide layers; what rows are moved by has the next seed.

    A scale-free step of such a layer is √(inputs/rows) times as long: as that of a direction of all its weights.
    """

    def drawn(self, rows: int) -> list[Tensor]:
        found = []
        for _ in range(self.looks.q):
            seed = int(torch.randint(2**62, (), generator=self.directions))
            by_rows, others = torch.Generator().manual_seed(seed + 1), torch.Generator().manual_seed(seed)
            normal = [torch.randn(sum(self.by_rows(rows)), generator=by_rows)]
            normal += [torch.randn(size, generator=others) for size in self.others()]
            whole = torch.cat(normal).double()
            found.append(whole / whole.square().sum().sqrt() * math.sqrt(whole.numel()))
        return found

    def look(self, exchange: int, rows: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        passed = self.passed[exchange] = self.pass_through(rows)
        self.looked[exchange] = self.drawn(len(rows))
        beside = []
        for side in (1, -1):
            for u in self.looked[exchange]:
                by_layer, rest = self.parted(self.looks.mu * u, len(rows))
                move = torch.cat([*(v.reshape(-1) for v in by_layer), _to_grid(rest)])
                beside.append(self.beside(rows, side * move, passed))
        return self.at(self.w.detach(), rows), beside

    def take_slopes(self, exchange: int, slopes: Sequence[float]) -> None:
        passed = self.passed.pop(exchange)
        self.looked[exchange] = [self.of_weights(u, passed, stretched=True) for u in self.looked[exchange]]
        GridTwin.take_slopes(self, exchange, slopes)


def _to_grid(tensor: Tensor) -> Tensor:
    return (tensor / GRID).round() * GRID


# --- the label party --------------------------------------------------------------------------------------------


@dataclass
class Looked(Upload):
    """`embedding` enters the table; the losses at `others` are asked for."""

    others: list[Tensor] = field(default_factory=list)


def row_losses(server: Server, rows: list[int], embeddings: Sequence[Tensor], label: float | None = None) -> Tensor:
    """ℓ of every row, times its weight; their mean is `server.loss`. With `label`: as if all had it, unweighted."""
    inputs = list(embeddings)
    if server.own is not None and server.own_columns is not None:
        inputs.append(server.own(server.own_columns.double()[rows]))
    outputs, targets = server.top(torch.cat(inputs, 1)), server.labels[rows]
    if label is not None:
        targets = torch.full_like(targets, label)
    if server.task == "multiclass":
        losses = functional.cross_entropy(outputs, targets, reduction="none")
    elif server.task == "binary":
        losses = functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double(), reduction="none")
    else:
        losses = (outputs[:, 0] - targets.double()).square()
    return losses if server.weights is None or label is not None else server.weights[rows] * losses


def estimate_by_top(server: Server, looks: Looks, directions: torch.Generator, loss: Loss) -> Tensor:
    """1/q Σ_j φ(d0) slope_j u_j by θ0; θ0 is left as it was."""
    parameters = server.parameters()
    before = vector_of(parameters)
    looked, near = [], []
    for _ in range(looks.q):
        u = looks.draw(directions, 1, before.numel())[0]
        looked.append(u)
        for move in looks.around(u):
            put_vector(parameters, before + move)
            near.append(loss().detach())
    put_vector(parameters, before)
    return looks.estimate(loss().detach(), near, looked)


def step_by(server: Server, gradient: Tensor) -> None:
    """Gives the optimiser a gradient that lies in one vector."""
    for parameter in server.parameters():
        parameter.grad = torch.zeros_like(parameter)
    put_vector([parameter.grad for parameter in server.parameters()], gradient)  # type: ignore[misc]
    server.optimiser.step()


@dataclass
class LookingServer(AsynchronousServer):
    """Lines 8–11 for every asynchronous algorithm: what is answered, and how θ0 moves, are their own."""

    looks: Looks = field(default_factory=Looks)
    directions: torch.Generator = field(default_factory=torch.Generator)
    by_layers: bool = False  # whether directions move what layers give, not weights

    def answer(self) -> None:
        uploads, self.update = self.update, []
        self.k += len(uploads)
        for upload in uploads:
            self.write(upload.sender, upload.rows, upload.embedding)
        for upload in uploads:
            assert isinstance(upload, Looked)
            points = [upload.embedding, *upload.others]
            at_points = [self.rows_with(upload, embedding).detach() for embedding in points]
            loss, answer = self.answered(upload, torch.stack(at_points))
            self.losses.append(loss)
            self.replies.append((upload.sender, upload.exchange, answer))
            others = sorted(self.delay(party, row, self.k) for party in self.widths for row in upload.rows)
            others = others[len(upload.rows) :]  # the sender's own rows were written just now
            self.delays += others
            self.too_late += sum(delay > self.D for delay in others) if self.D else 0
        self.move(uploads)

    def rows_with(self, upload: Upload, embedding: Tensor, label: float | None = None) -> Tensor:
        """Every row's loss, with this embedding in the sender's place."""
        known = {party: self.last_known(party, upload.rows) for party in self.widths}
        known[upload.sender] = embedding
        return row_losses(self, upload.rows, list(known.values()), label)

    def answered(self, upload: Looked, at_points: Tensor) -> tuple[float, Tensor]:
        """Line 9: h and ĥ, the means."""
        return at_points[0].mean().item(), at_points.mean(1)

    def mean_over(self, uploads: Sequence[Upload]) -> Tensor:
        """The mean loss of these uploads' rows, at the embeddings of the table and the θ0 of now."""
        known = [[self.last_known(party, upload.rows) for party in self.widths] for upload in uploads]
        losses = [row_losses(self, upload.rows, own).mean() for upload, own in zip(uploads, known, strict=True)]
        return torch.stack(losses).mean()

    def estimated(self, upload: Upload) -> Tensor:
        """The gradient by θ0 of the mean loss of these rows, by layers."""
        known = [self.last_known(party, upload.rows) for party in self.widths]
        return estimate_by_layers(self, self.looks, self.directions, upload.rows, known)

    def move(self, uploads: Sequence[Upload]) -> None:
        """Lines 10 and 11: θ0 ← θ0 − η0 ∇f (4)."""
        self.optimiser.zero_grad()
        self.mean_over(uploads).backward()
        self.optimiser.step()


class CascadedServer(LookingServer):
    pass


class ZooServer(LookingServer):
    """θ0 ← θ0 − η0 φ(d0)/μ [f(θ0 + μu0) − f(θ0)] u0."""

    def move(self, uploads: Sequence[Upload]) -> None:
        if self.by_layers:
            step_by(self, torch.stack([self.estimated(upload) for upload in uploads]).mean(0))
            return
        step_by(self, estimate_by_top(self, self.looks, self.directions, lambda: self.mean_over(uploads)))


class CzofoServer(LookingServer):
    """Every row's losses go back."""

    def answered(self, upload: Looked, at_points: Tensor) -> tuple[float, Tensor]:
        return at_points[0].mean().item(), at_points


@dataclass
class DpzvServer(LookingServer):
    """Equations (3) and (8): each row's slope, clipped on both sides, their mean, noise. One update for all uploads.

    `auto`: with noise, a slope less the middle of what it could be with any label, in units of the mean over the rows
    of half of what is between the least and the largest of these, is clipped to ±1; without noise the clip is 10.
    """

    clip: float | str = 0.0
    noise: float = 0.0
    server_update: str = "zeroth-order"
    server_clip: float | str = 1.0
    server_noise: float = 0.0
    noises: Callable[[int], Tensor] = torch.zeros  # the next numbers of N(0, 1)

    def possible_labels(self) -> list[float]:
        if self.task == "regression":
            return [-2.0, 2.0]
        return [0, 1] if self.task == "binary" else [*range(int(self.labels.max()) + 1)]

    def noised_means(self, slopes: Tensor, possible: list[Tensor], clip: float | str, noise: float) -> Tensor:
        """Of slopes [q, rows], and what they would be with each label."""
        units, middles = [1.0] * len(slopes), [[0.0] * slopes.shape[1]] * len(slopes)
        if clip == "auto" and noise:
            least, largest = torch.stack(possible).amin(0), torch.stack(possible).amax(0)
            units, middles = ((largest - least) / 2).mean(1).tolist(), ((largest + least) / 2).tolist()
        bound = float(clip) if clip != "auto" else 1.0 if noise else 10.0
        means = []
        for own, unit, middle in zip(slopes.tolist(), units, middles, strict=True):
            parts = [(slope - centre) / unit for slope, centre in zip(own, middle, strict=True)]
            means.append(sum(max(-bound, min(bound, one)) if bound else one for one in parts) / len(parts))
        mean = torch.tensor(means, dtype=torch.float64)
        if noise:
            mean = mean + noise * self.noises(len(means))
        return mean * torch.tensor(units).double() + torch.tensor(middles).double().mean(1)

    def answered(self, upload: Looked, at_points: Tensor) -> tuple[float, Tensor]:
        def slopes(at: Tensor) -> Tensor:
            plus, minus = at.chunk(2)
            return (plus - minus) / (2 * self.looks.mu)

        at = at_points[1:]
        possible = [
            slopes(torch.stack([self.rows_with(upload, one, label).detach() for one in upload.others]))
            for label in self.possible_labels()
        ]
        return at.mean().item(), self.noised_means(slopes(at), possible, self.clip, self.noise)

    def move(self, uploads: Sequence[Upload]) -> None:
        match self.server_update:
            case "zeroth-order" if self.by_layers:
                each = [self.estimated(upload) for upload in uploads]
            case "zeroth-order":
                each = [estimate_by_top(self, self.looks, self.directions, lambda: self.mean_over(uploads))]
            case "first-order":
                each = [self.gradient_of(upload, range(len(upload.rows))) for upload in uploads]
            case "private-zo":
                each = [self.private_estimate(upload) for upload in uploads]
            case "dp-sgd":
                each = [self.noised_gradient(upload) for upload in uploads]
            case _:
                return
        step_by(self, torch.stack(each).mean(0))

    def gradient_of(self, upload: Upload, places: Sequence[int]) -> Tensor:
        self.optimiser.zero_grad()
        rows = [upload.rows[place] for place in places]
        row_losses(self, rows, [self.last_known(party, rows) for party in self.widths]).mean().backward()
        return vector_of([parameter.grad for parameter in self.parameters()])  # type: ignore[misc]

    def private_estimate(self, upload: Upload) -> Tensor:
        parameters = self.parameters()
        before = vector_of(parameters)
        u = self.looks.draw(self.directions, 1, before.numel())[0]
        known = [self.last_known(party, upload.rows) for party in self.widths]

        def slopes(label: float | None) -> Tensor:
            put_vector(parameters, before + self.looks.mu * u)
            plus = row_losses(self, upload.rows, known, label).detach()
            put_vector(parameters, before - self.looks.mu * u)
            minus = row_losses(self, upload.rows, known, label).detach()
            put_vector(parameters, before)
            return ((plus - minus) / (2 * self.looks.mu)).unsqueeze(0)

        possible = [slopes(label) for label in self.possible_labels()]
        return self.noised_means(slopes(None), possible, self.server_clip, self.server_noise) * u

    def noised_gradient(self, upload: Upload) -> Tensor:
        """DP-SGD."""
        by_row = [self.gradient_of(upload, [place]) for place in range(len(upload.rows))]
        clip = 1.0 if self.server_clip == "auto" else float(self.server_clip)
        norms = [max(gradient.norm().item(), 1e-300) for gradient in by_row]  # 0 of a row that weighs nothing
        clipped = [gradient * min(1.0, clip / norm) for gradient, norm in zip(by_row, norms, strict=True)]
        mean = torch.stack(clipped).mean(0)
        return mean + self.server_noise * self.noises(mean.numel())


class NoisedLossServer(DpzvServer):
    """Losses that follow from noised slopes: 0 at the embedding, μ times each mean slope beside it (−μ on the left)."""

    def answered(self, upload: Looked, at_points: Tensor) -> tuple[float, Tensor]:
        here, sides = at_points[0], 2 if self.looks.two_sided else 1

        def slopes(at: Tensor) -> Tensor:
            each = [list(at[1 + sides * j : 1 + sides * (j + 1)]) for j in range(self.looks.q)]
            return torch.stack([self.looks.slope(at[0], near) for near in each])

        points = [upload.embedding, *upload.others]
        possible = [
            slopes(torch.stack([self.rows_with(upload, one, label).detach() for one in points]))
            for label in self.possible_labels()
        ]
        noised = self.noised_means(slopes(at_points), possible, self.clip, self.noise)
        losses = [0.0]
        for slope in noised.tolist():
            losses += [self.looks.mu * slope, -self.looks.mu * slope][:sides]
        return here.mean().item(), torch.tensor(losses, dtype=torch.float64)


@dataclass
class ZooSyncServer(SynchronousServer):
    """Appendix B, Algorithm 2, with both of the label party's losses at the plain embeddings."""

    looks: Looks = field(default_factory=Looks)
    directions: torch.Generator = field(default_factory=torch.Generator)
    by_layers: bool = False  # whether directions move what layers give, not weights

    def receive(self, upload: Upload) -> None:
        self.here[upload.sender] = upload
        if len(self.here) < len(self.widths):
            return
        arrived, self.here = self.here, {}
        rows = upload.rows
        plain = {party: arrived[party].embedding for party in self.widths}

        def loss(embeddings: dict[str, Tensor]) -> Tensor:
            return row_losses(self, rows, list(embeddings.values())).mean()

        here = loss(plain).detach()
        self.losses.append(here.item())
        for party, sent in arrived.items():
            assert isinstance(sent, Looked)
            near = [loss({**plain, party: embedding}).detach() for embedding in sent.others]
            self.replies.append((party, sent.exchange, torch.stack([here, *near])))
        if self.by_layers:
            step_by(self, estimate_by_layers(self, self.looks, self.directions, rows, list(plain.values())))
            return
        step_by(self, estimate_by_top(self, self.looks, self.directions, lambda: loss(plain)))
