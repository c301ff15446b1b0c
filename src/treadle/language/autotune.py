"""`@treadle.autotune`: the fastest of several configurations of a kernel, found once for each class of arguments and kept.

On a GPU the configurations are compiled side by side and measured in turns; on the simulator a machine's model says how long they take.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.errors import KERNEL_CALL, TreadleError
from treadle.language import launches
from treadle.language.kernel import Grid, Kernel

if TYPE_CHECKING:
    from treadle.language.inspection import Inspection

_MODELLED_CLOCKS = 5e6


@dataclass(frozen=True)
class Config:
    """One way to compile a kernel: values of its constants, and the launch's `num_warps` and `num_stages`."""

    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 4

    @property
    def named(self) -> dict[str, Any]:
        """As arguments of a launch."""
        return {**self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.named.items())


@dataclass(frozen=True)
class Choice:
    """What was chosen. `times`: in ms by configuration, None where it does not run; `source`: where they are from."""

    config: Config
    times: Mapping[Config, float | None] = field(hash=False)
    problems: Mapping[Config, str] = field(hash=False)
    source: str


class Tuned:
    """A kernel with configurations; called as the kernel is, without what they give. `choices`: what was chosen, by key."""

    def __init__(self, kernel: Kernel, configs: Sequence[Config], key: Sequence[str], model: str) -> None:
        self.kernel, self.configs, self.key, self.model = kernel, tuple(configs), tuple(key), model
        self.choices: dict[tuple[Any, ...], Choice] = {}
        names = kernel.parameters()
        unknown = [name for config in self.configs for name in config.constants if name not in names]
        unknown += [name for name in self.key if name not in names]
        if not self.configs or unknown:
            problem = f"it has no argument '{unknown[0]}', which autotune names" if unknown else "autotune has no configurations"
            raise TreadleError(KERNEL_CALL, name=kernel.function.__name__, problem=problem)

    def __getitem__(self, grid: Grid) -> "TunedLaunch":
        return TunedLaunch(self, grid)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Kernels are launched over a grid."""
        return self.kernel(*arguments, **named)

    def inspection(self) -> "Inspection":
        """The kernel as the last call ran it."""
        return self.kernel.inspection()


class TunedLaunch:
    """A tuned kernel with its grid."""

    def __init__(self, tuned: Tuned, grid: Grid) -> None:
        self._tuned, self._grid = tuned, grid

    def __call__(self, *arguments: Any, target: str | None = None, **named: Any) -> None:
        """Run the kernel in the configuration for these arguments, which the first call with them finds out."""
        if launches.are_left_out:
            return
        config = self.choice(*arguments, target=target, **named).config
        self._tuned.kernel[self._grid](*arguments, target=target, **named, **config.named)

    def choice(self, *arguments: Any, target: str | None = None, **named: Any) -> Choice:
        """The configuration for these arguments, with the times of all."""
        from treadle.driver import target_of_device

        tuned = self._tuned
        machine = target or tuned.kernel.target
        machine = target_of_device("auto") if machine == "auto" else machine
        key = (machine, *self._key(arguments, named))
        if key not in tuned.choices:
            tuned.choices[key] = self._stored(key) or self._found(key, machine, arguments, named)
        return tuned.choices[key]

    def _key(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a choice is for: element types, ranks, and of the arguments in the key also shapes and values."""
        from treadle.runtime.arrays import view

        tuned, parts = self._tuned, list[Any]()
        for number, (name, value) in enumerate(tuned.kernel.partly_bound(arguments, named).items()):
            if tuned.kernel.is_constant(name, value) or isinstance(value, int):
                parts.append((name, repr(value)) if name in tuned.key else name)
                continue
            seen = view(value, name, number)
            parts.append((name, seen.dtype, tuple(seen.shape) if name in tuned.key else len(seen.shape)))
        return tuple(parts)

    # --- the store of what was found

    def _path(self, key: tuple[Any, ...]) -> Any:
        import inspect

        from treadle.driver.tuned import record_path
        from treadle.options import CompileOptions

        tuned = self._tuned
        text = "\n".join([inspect.getsource(tuned.kernel.function), repr(key), *map(str, tuned.configs)])
        return record_path(text, str(key[0]), tuned.kernel.options or CompileOptions())

    def _product(self, machine: str) -> str:
        from treadle.driver.tuned import product_of

        return f"the model of {self._tuned.model}" if machine == "sim" else product_of(machine)

    def _stored(self, key: tuple[Any, ...]) -> Choice | None:
        from treadle.driver.tuned import read_record

        content = read_record(self._path(key))
        if content is None or content.get("product") != self._product(key[0]):
            return None
        chosen = content["best"]["options"].get("config")
        config = next((config for config in self._tuned.configs if str(config) == chosen), None)
        times = {config: content["best"].get("ms")} if config is not None else {}
        return None if config is None else Choice(config, times, {}, f"stored: {content['product']}")

    def _found(self, key: tuple[Any, ...], machine: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Choice:
        from treadle import __version__
        from treadle.bench.records import write

        times, problems = (self._modelled if machine == "sim" else self._measured)(machine, arguments, named)
        known = {config: time for config, time in times.items() if time is not None}
        if not known:
            first, why = next(iter(problems.items()))
            problem = f"none of its {len(self._tuned.configs)} configurations runs; {first}: {why}"
            raise TreadleError(KERNEL_CALL, name=self._tuned.kernel.function.__name__, problem=problem)
        best, product = min(known, key=lambda config: known[config]), self._product(machine)
        rows = [{"config": str(config), "ms": time, "problem": problems.get(config, "")} for config, time in times.items()]
        content = {"treadle": __version__, "target": machine, "product": product, "measured": rows}
        write(self._path(key), content | {"best": {"options": {"config": str(best)}, "ms": known[best]}})
        return Choice(best, times, problems, product)

    # --- times

    def _modelled(
        self, machine: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[Config, float | None], dict[Config, str]]:
        """Times by the model of a machine; the simulator has none of its own."""
        _ = machine
        problems: dict[Config, str] = {}

        def model(config: Config) -> float | None:
            launch = self._tuned.kernel[self._grid]
            try:
                return launch.inspect(*arguments, **named, **config.named).modelled_ms(self._tuned.model, _MODELLED_CLOCKS)
            except TreadleError as error:
                problems[config] = f"{error.code}: {error.message}"
                return None

        return self._each("modelling", model), problems

    def _measured(
        self, machine: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[Config, float | None], dict[Config, str]]:
        """Times on the device, of configurations that were compiled in processes of their own. Arrays are copies: runs change them."""
        from treadle.bench.machine import TorchMachine
        from treadle.bench.protocol import QUICK, measure

        problems: dict[Config, str] = {}

        def build(config: Config) -> bool:
            try:
                why = self._tuned.kernel[self._grid].prepare(*arguments, target=machine, **named, **config.named)
            except TreadleError as error:
                why = f"{error.code}: {error.message}"
            if why:
                problems[config] = why
            return not why

        built = self._each("compiling", build)
        device = TorchMachine(QUICK.flush_bytes)
        positional, by_name = [_copy(value) for value in arguments], {name: _copy(value) for name, value in named.items()}
        runs: dict[str, Callable[[], object]] = {}
        for config in (config for config, is_there in built.items() if is_there):
            run = self._run(config, machine, positional, by_name)
            try:
                run()
                runs[str(config)] = run
            except TreadleError as error:
                problems[config] = f"{error.code}: {error.message}"
        taken = measure(device, runs, QUICK) if runs else {}
        return {config: taken[str(config)].median_ms if str(config) in taken else None for config in self._tuned.configs}, problems

    def _run(self, config: Config, machine: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Callable[[], object]:
        launch = self._tuned.kernel[self._grid]
        return lambda: launch(*positional, target=machine, **named, **config.named)

    def _each(self, what: str, do: Callable[[Config], Any]) -> dict[Config, Any]:
        """What a function gives for each configuration, side by side, with a progress bar on stderr."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from treadle import knobs

        configs = self._tuned.configs
        workers = 1 if what == "modelling" else min(len(configs), knobs.WORKERS.get() or min(8, os.cpu_count() or 1))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        found: dict[Config, Any] = {}
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress, ThreadPoolExecutor(workers) as pool:
            task = progress.add_task(f"{what} {self._tuned.kernel.function.__name__}", total=len(configs))
            for config, value in zip(configs, pool.map(do, configs), strict=True):
                found[config] = value
                progress.advance(task)
        return found


def _copy(value: Any) -> Any:
    """A copy of an array that has one; anything else as it is."""
    copy = getattr(value, "clone", None) or (getattr(value, "copy", None) if hasattr(value, "shape") else None)
    return copy() if callable(copy) else value


def autotune(configs: Sequence[Config], key: Sequence[str] = (), model: str = "sm_90a") -> Callable[[Kernel], Tuned]:
    """Choose among configurations of a kernel: `@treadle.autotune([treadle.Config({"BM": 64}), ..], key=["a"])` above `@treadle.kernel`.

    A choice is made at the first call with new element types, ranks, and shapes or values of the arguments in `key`, and kept on disk. On a
    GPU it is measured (PyTorch is needed for that); on the simulator it is the one that the model of the machine `model` takes for the
    fastest. Raises TR738 where none runs.
    """

    def decorate(kernel: Kernel) -> Tuned:
        return Tuned(kernel, configs, key, model)

    return decorate
