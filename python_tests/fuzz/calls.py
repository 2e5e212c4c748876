"""Calls of every operator entry: half of them valid, the others with spoilt arguments.

A call depends on its seed alone, so that the seed reproduces it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from math import exp, lgamma, pi, sqrt
from random import Random
from typing import Any

import torch
from torch import Tensor

import wpnode_ext as wp
from fuzz import draw
from wpnode_ext import ops
from wpnode_ext.ops import checks, reference
from wpnode_ext.ops.backend import _C
from wpnode_ext.weak import segments

RAW = torch.ops.wpnode


@dataclass
class Call:
    """One call, with the expected result if there is one."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    valid: bool = True  # a valid call must not be refused
    expected: Callable[..., Any] | None = None  # called with the same arguments
    listed: bool = False  # `starts` must be a vector of int64
    spoilt: list[str] = field(default_factory=list)

    def describe(self) -> str:
        parts = (f"{name}={_show(value)}" for name, value in self.arguments.items())
        return f"{self.name}({', '.join(parts)})"


def _show(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    if value.dtype == torch.int64 and value.numel() < 20:
        return f"tensor({value.tolist()})"
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind}{list(value.shape)}" + ("" if value.is_contiguous() else " strided")


@dataclass
class Layout:
    """Sizes of a valid problem."""

    batch: int
    n_samples: int
    state: int
    ell: int
    q: int
    starts: Tensor | None
    per_segment: bool
    dtype: torch.dtype

    @property
    def n_segments(self) -> int:
        if self.starts is not None:
            return len(self.starts)
        return checks.count_segments(self.n_samples, self.ell, self.q)

    def series(self, random: Random) -> Tensor:
        return draw.tensor(random, (self.batch, self.n_samples, self.state), self.dtype)

    def rows(self, random: Random, dtype: torch.dtype) -> Tensor:
        return draw.tensor(random, (self.batch, self.n_segments, self.state), dtype)

    def weights(self, random: Random) -> Tensor:
        rows = (self.n_segments,) if self.per_segment else ()
        return draw.tensor(random, (*rows, self.ell + 1), draw.wide(self.dtype))

    def times(self, random: Random) -> Tensor:
        return (draw.tensor(random, (self.n_samples,), torch.float64) + 1.1).cumsum(0)


def draw_layout(random: Random, *, even: bool = False) -> Layout:
    ell = random.choice((0, 1, 2, 3, 4, 7, 10, 20, 33))
    if even:
        ell = random.choice((2, 4, 6, 10, 20))
    n_samples = ell + 1 + random.choice((0, 0, 1, 2, 7, 30, 90))
    q = random.choice((1, 1, 2, 3, 7, ell + 1, ell + 5, 100))
    if random.randrange(4) == 0:
        q = max(1, draw.integer(random))
    starts = None
    if random.randrange(2):
        last = n_samples - 1 - ell
        count = random.choice((0, 1, 2, 5, 12))
        values = sorted(random.randrange(last + 1) for _ in range(count))
        starts = torch.tensor(values, dtype=torch.int64)
    state, batch = draw.size(random), random.choice((1, 1, 2, 3))
    if random.randrange(12) == 0:
        state, batch = random.choice(((0, batch), (state, 0)))
    per_segment = random.randrange(3) == 0
    dtype = random.choice(draw.SERIES)
    while batch * n_samples * state > draw.MOST_ELEMENTS:
        state //= 2
    return Layout(batch, n_samples, state, ell, q, starts, per_segment, dtype)


def _wide(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def _reference(name: str) -> Callable[..., Any]:
    def expected(**arguments: Any) -> Tensor:
        return getattr(reference, name)(**{k: _wide(v) for k, v in arguments.items()})

    return expected


def _operator(name: str, random: Random) -> Call:
    """An entry of `wpnode_ext.ops`, or the registered operator of the same name."""
    at = draw_layout(random)
    x, w = at.series(random), at.weights(random)
    common: dict[str, Any] = {"q": at.q, "starts": at.starts}
    if name == "corr":
        arguments = {"x": x, "w": w, **common}
    elif name == "corr_t":
        y = at.rows(random, at.dtype)
        arguments = {"y": y, "w": w, "n_samples": at.n_samples, **common}
    elif name == "corr_w":
        y, rows = at.rows(random, at.dtype), at.per_segment
        arguments = {"x": x, "y": y, "ell": at.ell, "per_segment": rows, **common}
    else:
        lhs = at.rows(random, w.dtype)
        arguments = {"f": x, "lhs": lhs, "w": w, "scale": 0.3, **common}
    public = random.randrange(2) == 0
    function = getattr(ops, name) if public else None
    if name == "squared_residual":
        gradient = random.randrange(2) == 0
        function = _loss(gradient, public)
        return Call(
            f"{'ops' if public else 'torch.ops.wpnode'}.{name}"
            f"{' and its gradient' if gradient else ''}",
            function,
            arguments,
            expected=_expected_loss(gradient),
        )
    label = f"ops.{name}" if public else f"torch.ops.wpnode.{name}"
    return Call(
        label,
        function or getattr(RAW, name),
        arguments,
        expected=_reference(name),
    )


def _loss(gradient: bool, public: bool) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        if not public:
            return (RAW.weak_loss_grad if gradient else RAW.weak_loss)(**arguments)
        if not gradient:
            return ops.squared_residual(**arguments)
        f = arguments["f"].detach().requires_grad_()
        loss = ops.squared_residual(**{**arguments, "f": f})
        loss.backward()
        return loss.detach(), f.grad

    return call


def _expected_loss(gradient: bool) -> Callable[..., Any]:
    def expected(**arguments: Any) -> Any:
        arguments = {name: _wide(value) for name, value in arguments.items()}
        f = arguments["f"].requires_grad_()
        loss = reference.squared_residual(**{**arguments, "f": f})
        if not gradient:
            return loss.detach()
        loss.backward()
        return loss.detach(), f.grad

    return expected


def _generated(name: str, random: Random) -> Call:
    """Operators whose weights come from times."""
    at = draw_layout(random, even=True)
    p, t = random.choice((1, 2, 4, 8, 64)), at.times(random)
    common = {"t": t, "starts": at.starts, "q": at.q, "p": p, "ell": at.ell}
    if name == "segment_rows":
        d = random.choice((1, 2)) if p > 1 else 1

        def rows(**a: Any) -> Any:
            if a["starts"] is not None and len(a["starts"]) == 0:
                return torch.zeros(0, a["ell"] + 1), torch.zeros(0, a["ell"] + 1)
            layout = {name: a[name] for name in ("t", "d", "q", "starts")}
            return wp.segment_weights(a["p"], a["ell"], rule="linear", **layout)

        return Call(
            f"torch.ops.wpnode.{name}",
            RAW.segment_rows,
            {**common, "d": d},
            expected=rows,
        )
    f, lhs = at.series(random), at.rows(random, draw.wide(at.dtype))

    def expected(**a: Any) -> Any:
        rows = RAW.segment_rows(a["t"], a["starts"], a["q"], a["p"], a["ell"], 1)[1]
        kept = {key: a[key] for key in ("f", "lhs", "starts", "q", "scale")}
        return _expected_loss(name == "weak_loss_grad_at")(w=rows, **kept)

    return Call(
        f"torch.ops.wpnode.{name}",
        getattr(RAW, name),
        {"f": f, "lhs": lhs, "scale": 0.3, **common},
        expected=expected,
    )


def _sums_to_the_integral(p: int, half: float) -> float:
    """``half * int (1 - s^2)^p ds``, what the weights of any rule add up to."""
    return half * sqrt(pi) * exp(lgamma(p + 1.0) - lgamma(p + 1.5))


def _uniform(name: str, random: Random) -> Call:
    at = draw_layout(random, even=True)
    p, dt = random.choice((1, 2, 8, 64)), random.choice((1.0, 1e-3, 7.5))
    d = random.choice((1, 2)) if p > 1 else 1
    arguments = {"p": p, "ell": at.ell, "dt": dt, "d": d}
    functions = {
        "segment_weights": wp.segment_weights,
        "segment_weights operator": RAW.segment_weights,
        "uniform_weights": _C.uniform_weights,
    }

    def expected(**a: Any) -> Any:
        total = _sums_to_the_integral(a["p"], 0.5 * a["ell"] * a["dt"])
        return torch.tensor(total, dtype=torch.float64)

    def sums(**a: Any) -> Any:
        return torch.as_tensor(functions[name](**a)[1]).sum()

    return Call(name, sums, arguments, expected=expected)


def _irregular(name: str, random: Random) -> Call:
    at = draw_layout(random, even=True)
    p, t = random.choice((1, 2, 8, 64)), at.times(random)
    first = at.starts if at.starts is not None else torch.arange(0, 1)
    rule, d = random.choice(("linear", "spline")), 1

    def expected(**a: Any) -> Any:
        half = 0.5 * (a["t"][a["starts"] + a["ell"]] - a["t"][a["starts"]])
        return half * _sums_to_the_integral(a["p"], 1.0)

    def sums(**a: Any) -> Any:
        if name == "irregular_weights":
            times, starts = a["t"].numpy(), a["starts"].numpy()
            rows = _C.irregular_weights(
                a["p"], a["ell"], a["d"], a["rule"], times, starts
            )
            return torch.from_numpy(rows[1]).sum(1)
        return wp.segment_weights(**a)[1].sum(1)

    arguments = {"p": p, "ell": at.ell, "d": d, "rule": rule, "t": t, "starts": first}
    return Call(name, sums, arguments, expected=expected, listed=True)


def _checks(name: str, random: Random) -> Call:
    """Functions that check integers and compute nothing."""
    at = draw_layout(random, even=True)
    starts = at.starts if at.starts is not None else torch.zeros(1, dtype=torch.int64)
    if name == "check_parameters":
        arguments: dict[str, Any] = {"p": 8, "ell": at.ell, "d": 1}
        return Call(name, _C.check_parameters, arguments)
    if name == "segment_starts":
        arguments = {"n_samples": at.n_samples, "ell": at.ell, "q": at.q}

        def every(n_samples: int, ell: int, q: int) -> Tensor:
            return torch.tensor([*range(0, max(0, n_samples - ell), q)])

        return Call(name, segments.segment_starts, arguments, expected=every)
    arguments = {"starts": starts, "n_samples": at.n_samples, "ell": at.ell}
    if name == "is_uniform":

        def uniform(starts: Tensor, n_samples: int, ell: int, q: int) -> Tensor:
            every = range(0, max(0, n_samples - ell), q)  # may be too long for len()
            first = [*islice(every, len(starts) + 1)]
            return torch.tensor(starts.tolist() == first)

        def asked(**a: Any) -> Tensor:
            return torch.tensor(checks.is_uniform(**a))

        more = {**arguments, "q": at.q}
        return Call(name, asked, more, expected=uniform, listed=True)
    if name == "check_starts":
        valid = len(starts) > 0
        return Call(name, checks.check_starts, arguments, valid, listed=True)

    def compiled(starts: Tensor, **sizes: Any) -> None:
        _C.check_starts(starts.numpy(), **sizes)

    return Call("_C.check_starts", compiled, arguments, listed=True)


def _plan(name: str, random: Random) -> Call:
    at = draw_layout(random, even=True)
    while at.starts is not None and len(at.starts) == 0:
        at = draw_layout(random, even=True)
    at.batch, at.state = max(1, at.batch), max(1, at.state)
    v = at.series(random)[0]
    f = draw.tensor(random, tuple(v.shape), at.dtype)

    def losses(backend: str) -> Callable[..., Any]:
        def call(f: Tensor, v: Tensor, **a: Any) -> Any:
            if backend == "reference":
                f, v = f.double(), v.double()
            return wp.WeakPlan(v, dt=0.1, p=2, backend=backend, **a).loss(f)  # type: ignore[arg-type]

        return call

    arguments = {"f": f, "v": v, "ell": at.ell, "q": at.q, "starts": at.starts}
    return Call(name, losses("fused"), arguments, expected=losses("reference"))


MAKERS: dict[str, Callable[[str, Random], Call]] = {
    "corr": _operator,
    "corr_t": _operator,
    "corr_w": _operator,
    "squared_residual": _operator,
    "segment_rows": _generated,
    "weak_loss_at": _generated,
    "weak_loss_grad_at": _generated,
    "segment_weights": _uniform,
    "segment_weights operator": _uniform,
    "uniform_weights": _uniform,
    "segment_weights at times": _irregular,
    "irregular_weights": _irregular,
    "check_parameters": _checks,
    "segment_starts": _checks,
    "is_uniform": _checks,
    "check_starts": _checks,
    "_C.check_starts": _checks,
    "plan": _plan,
}
# The operators themselves, which read and write memory, get most of the calls.
NAMES = [*MAKERS, *4 * list(MAKERS)[:7]]
# Sizes that fit into memory and take seconds; they are left out.
SLOW = range(2**20, 2**34)


def make(seed: int) -> Call:
    """The call of a seed."""
    random = Random(seed)
    name = random.choice(NAMES)
    call = MAKERS[name](name, random)
    if random.randrange(3):
        call.expected = None  # the reference takes most of the time
    if random.randrange(2):
        for _ in range(random.choice((1, 1, 2, 3))):
            _spoil(call, random)
    return call


def _spoil(call: Call, random: Random) -> None:
    name = random.choice(list(call.arguments))
    value = call.arguments[name]
    call.valid = False
    call.spoilt.append(name)
    if name == "starts":
        starts = draw.spoiled_starts(random, value, random.randrange(6))
        if call.listed and not draw.is_vector(starts):
            return  # the entry gets no tensors of another kind
        call.arguments[name] = starts
    elif isinstance(value, Tensor):
        call.arguments[name] = draw.spoiled(random, value)
    elif isinstance(value, bool):
        call.arguments[name] = not value
    elif isinstance(value, int):
        number = draw.integer(random)
        while name in ("ell", "n_samples") and number in SLOW:
            number = draw.integer(random)
        call.arguments[name] = number
    elif isinstance(value, float):
        values = (0.0, -1.0, float("nan"), float("inf"), 1e308, 5e-324)
        call.arguments[name] = random.choice(values)
    elif isinstance(value, str):
        call.arguments[name] = random.choice(("auto", "linear", "spline", "", "x" * 99))
