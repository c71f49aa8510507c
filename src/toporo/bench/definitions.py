"""What a table of the paper consists of: a protocol, its variants and its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toporo.bench.methods import METHODS, Method
from toporo.errors import SettingError, UnknownNameError

#: Instead of an option's value: all of them, where there are two or more.
BOTH, ALL = "both", "all"
#: What a message calls an option whose name does not say enough.
_TITLES = {"test": "test domain or event"}


@dataclass(frozen=True)
class Metric:
    """A column: its name, where an epoch's metrics have it, and what to multiply it by."""

    name: str
    key: str
    scale: float = 1.0


@dataclass(frozen=True)
class Variant:
    """One way to pose a benchmark, with a table of its own.

    Attributes
    ----------
    options : of :func:`toporo.bench.datasets.load_dataset`.
    training : what of the protocol's training differs.
    paper : published figures, by method and metric.
    """

    name: str = ""
    title: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Protocol:
    """How every method of a benchmark is trained and measured, and what the paper reports for it.

    Attributes
    ----------
    methods : names, in the order of the table.
    changes : what of a method (a field of :class:`Method`) is particular to this benchmark, by its name.
    notes : for the report; ``{steps}`` stands for the steps of a run.
    metric, metrics : what the figures are, in words; and the columns, of which the last one is over all test groups.
    better : whether ``"higher"`` or ``"lower"`` figures are better.
    priors : settings of :func:`toporo.topology.prior.make_prior`.
    data_topology, inputs_topology : settings for learning a topology from features and from raw inputs.
    evaluate_every : epochs from one evaluation to the next.
    model : what takes the place of ``"mlp"`` in all methods: a name in :data:`toporo.bench.fits.FITS`.
    network : of the models for images: architecture, weights, precision, …
    unit : what ``epochs`` and ``evaluate_every`` count.
    extra : names of further methods, which run when they are asked for by name.
    headline : the selection rule whose figures stand for a method where there is room for one.
    average : published averages over the variants by method, where such an average means something; None where not.
    """

    benchmark: str
    title: str
    methods: tuple[str, ...]
    epochs: int
    per_group: int
    learning_rate: float
    hidden: tuple[int, ...]
    validation: float
    metric: str
    metrics: tuple[Metric, ...]
    data_topology: Mapping[str, Any]
    inputs_topology: Mapping[str, Any]
    variants: tuple[Variant, ...]
    task: str = "classification"
    better: str = "higher"
    digits: int = 2
    priors: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evaluate_every: int = 1
    notes: tuple[str, ...] = ()
    model: str = "mlp"
    network: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "epochs"
    extra: tuple[str, ...] = ()
    headline: str = "last"
    average: Mapping[str, float] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """Names of all methods, in the order of the table."""
        return (*self.methods, *self.extra)

    def method(self, name: str) -> Method:
        """A method as this benchmark has it."""
        if name not in self.known:
            raise UnknownNameError("method", name, self.known)
        found = METHODS[name]
        model = self.model if found.model == "mlp" else found.model
        return replace(found, **{"model": model, **self.changes.get(name, {})})

    def get_methods(self, names: Iterable[str] | None = None) -> list[Method]:
        """Methods by name, in the order of the table; all of them for None."""
        if names is None:
            return [self.method(name) for name in self.known]
        wanted = [self.method(name.strip()) for name in names if name.strip()]
        if not wanted:
            raise SettingError(f"no method named: choose from {', '.join(self.known)}.")
        return [method for method in self.get_methods() if method in wanted]

    def get_variants(self, **options: str | None) -> list[Variant]:
        """The variants with these options, all of them where an option is None, ``"both"`` or ``"all"``.

        An option may name several values, with commas between them.

        >>> from toporo.bench.protocols import PROTOCOLS
        >>> [variant.name for variant in PROTOCOLS["tpt48"].get_variants(split="east-west")]
        ['east-west/season', 'east-west/sliding']
        """
        found = list(self.variants)
        for option, value in options.items():
            if value is None:
                continue
            known = list(dict.fromkeys(v.options[option] for v in self.variants if option in v.options))
            if not known:
                from toporo.bench.protocols import PROTOCOLS  # which is made of protocols

                having = [p.benchmark for p in PROTOCOLS.values() if any(option in v.options for v in p.variants)]
                raise SettingError(
                    f"{self.benchmark} has no {option} to choose (found {value!r}): leave --{option} out"
                    + (f"; it is for {', '.join(having)}." if having else ".")
                )
            every = BOTH if len(known) == 2 else ALL
            wanted = [name.strip() for name in value.split(",") if name.strip()] or [value]
            for name in wanted:
                if name not in (*known, every):
                    raise UnknownNameError(_TITLES.get(option, option), name, (*known, every))
            found = [variant for variant in found if {variant.options[option], every} & set(wanted)]
        return found

    def for_variant(self, variant: Variant) -> Protocol:
        """The protocol as it stands for one of its variants."""
        return replace(self, variants=(variant,), **variant.training)

    def paper(self, variant: str, method: str, metric: str) -> float | None:
        """The published figure, where there is one."""
        found = next((v for v in self.variants if v.name == variant), Variant())
        return found.paper.get(method, {}).get(metric)
