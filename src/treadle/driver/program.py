"""A compiled program: call it on arrays, read its stages, save its artifact.

NumPy is imported with the first call, not with the program: loading one from the cache must cost little.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from treadle.artifact import MANIFEST_FILE, Manifest, TensorRecord
from treadle.errors import SourceLocation
from treadle.remarks import Remark

if TYPE_CHECKING:
    from treadle.driver.lowering import Lowered
    from treadle.plan.argument_layout import Layouts
    from treadle.runtime.arrays import ArrayView
    from treadle.runtime.call_cache import CallCache, Expected
    from treadle.runtime.call_form import CallForm
    from treadle.runtime.device import Device, LoadedProgram
    from treadle.runtime.direct_call import SettledCall
    from treadle.sim.reference import ReferenceResult

REMARKS_FILE = "remarks.json"
_SEQUENCES: Final[frozenset[type]] = frozenset((tuple, list))


def remarks_from_json(text: bytes) -> tuple[Remark, ...]:
    """What `lowering.remarks_to_json` wrote."""
    return tuple(
        Remark(row["kind"], row["pass"], row["subject"], row["text"], _location(row["location"]), row.get("seconds"))
        for row in json.loads(text)
    )


def _location(given: Sequence[Any] | None) -> SourceLocation | None:
    return SourceLocation(*given) if given else None


def _each(out: Any) -> "Sequence[Any]":
    """The arrays of an `out` argument."""
    return cast("Sequence[Any]", out) if isinstance(out, (tuple, list)) else (out,)


def type_text(record: TensorRecord) -> str:
    """`f32[rows, 8]`; a scalar is `f32`."""
    return record.dtype + (f"[{', '.join(map(str, record.shape))}]" if record.shape else "")


class Specialise(Protocol):
    """Compiles a variant of a program."""

    def __call__(self, layouts: "Layouts | None", *, wide: bool) -> "Program": ...


class Program:
    """One function, compiled for one target.

    `target`: "sim", or an architecture, with the product where one is compiled for. `manifest`: inputs, outputs, buffers, kernels and
    launches. `binaries`: file name to contents. `remarks`: the compiler's decisions and refusals, in order. `stages`: stage name to text
    (tensor, dispatch, tile, schedule, llvm, asm; those that the target has), made when first asked for, by compiling once more; nothing
    else pays for them.
    A program can be copied and pickled: nothing of a device goes with it, and the first call in the other process loads it there.
    """

    def __init__(
        self,
        target: str,
        files: Mapping[str, bytes],
        texts: "Callable[[], Lowered]",
        reference: "Callable[[Sequence[Any]], Sequence[ReferenceResult]]",
        device: "Callable[[], Device]",
        specialise: "Specialise",
    ) -> None:
        self.target = target
        self.files: Mapping[str, bytes] = MappingProxyType(dict(files))
        self.manifest = Manifest.from_json(files[MANIFEST_FILE])
        self._texts = texts
        self._reference = reference
        self._open_device = device
        self._specialise = specialise
        self._variants: dict[tuple[Layouts | None, bool], Program] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process needs: the files and how to make more of them. What lies on a device comes back with a call."""
        return {
            "target": self.target,
            "files": dict(self.files),
            "texts": self._texts,
            "reference": self._reference,
            "device": self._open_device,
            "specialise": self._specialise,
            "variants": dict(self._variants),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        variants = state.pop("variants")
        Program.__init__(self, **state)
        self._variants.update(variants)

    def __repr__(self) -> str:
        m = self.manifest
        arguments = ", ".join(f"{t.name}: {type_text(t)}{' in place' if t.in_place else ''}" for t in m.inputs)
        results = ", ".join(type_text(t) for t in m.outputs)
        kernels = ", ".join(kernel.name for kernel in m.kernels) or "none"
        return f"<treadle.Program {self.name}({arguments}) -> ({results}) for {self.target}, kernels: {kernels}>"

    @property
    def name(self) -> str:
        """The compiled function's name."""
        return self.manifest.function

    @cached_property
    def binaries(self) -> Mapping[str, bytes]:
        """Contents of the kernels' binaries by file name."""
        return {kernel.binary: self.files[kernel.binary] for kernel in self.manifest.kernels}

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """Every decision and refusal of the compilation, with its reason."""
        return remarks_from_json(self.files[REMARKS_FILE])

    @cached_property
    def stages(self) -> Mapping[str, str]:
        """Stage name to text."""
        return MappingProxyType(self._texts().stages)

    @cached_property
    def _calls(self) -> "CallCache":
        from treadle.runtime.call_cache import CallCache

        return CallCache(self.manifest)

    @property
    def expected(self) -> "Expected":
        """What calls without given results try first: `expected.last(arrays, ())` runs the program on PyTorch tensors like those of the
        last call; None, with nothing done, where they are not. Callers that keep it save a look at keywords and attributes each time.
        """
        return self._calls.fresh

    def settled(self, arrays: "Sequence[Any]", other: "SettledCall | None" = None) -> "SettledCall | None":
        """Calls without given results on PyTorch tensors like these, after the first one: a function that looks at nothing but addresses.
        The caller answers for number, types, shapes, strides and devices. `other`: what it calls at addresses that are less aligned, by
        default the program. None on the simulator and for other arrays.
        """
        return self._calls.settled(arrays, other or self)

    @cached_property
    def _loaded(self) -> "LoadedProgram":
        return self._open_device().load(self.manifest, self.files)

    @property
    def device_name(self) -> str:
        """The device it runs on, in words."""
        return self._loaded.device_name

    def __call__(self, *arrays: Any, out: Any = None) -> tuple[Any, ...]:
        """Run on arrays (NumPy, or anything with DLPack or `__cuda_array_interface__`); returns one array an output.

        On a GPU the call only enqueues work: on PyTorch's current stream where PyTorch is loaded, else on the default stream. Results are
        PyTorch tensors, from PyTorch's allocator, if a PyTorch tensor of the GPU is among the arguments, else `DeviceArray`s.
        `out`: an array or a sequence of arrays to fill and return instead, laid out as results are and apart from the arguments.

        Arrays on the device are read where they are, whatever their strides and addresses: the first call with a class of layouts
        compiles a variant for it, and so does the first one with sizes beyond 32-bit indices (`variant_for`).
        Arrays of the host are copied to a GPU. A call whose kinds of arguments were seen before
        may be captured into a CUDA graph, if the arguments are PyTorch tensors or the results are given.
        Raises TreadleError for a wrong number, type, shape or device of arguments, strides that run backwards, or sizes that the
        program rules out.
        """
        calls = self._calls
        if out is None:
            results = calls.fresh.last(arrays, ())
            return self._call(arrays, None) if results is None else results
        results = calls.given.last(arrays, out if type(out) in _SEQUENCES else (out,))
        return self._call(arrays, _each(out)) if results is None else results

    def _call(self, arrays: "Sequence[Any]", outs: "Sequence[Any] | None") -> tuple[Any, ...]:
        """A call that is not like the last one."""
        calls = self._calls
        results = calls.fresh.try_older(arrays, ()) if outs is None else calls.given.try_older(arrays, outs)
        if results is not None:
            return results
        known, pointers, key = calls.find(arrays, outs)
        if known is None:
            return self._first_call(arrays, outs, key)
        calls.expect(known, pointers, arrays, outs)
        return known.form.run(pointers, arrays, outs)

    def _first_call(self, arrays: "Sequence[Any]", outs: "Sequence[Any] | None", key: tuple[Any, ...]) -> tuple[Any, ...]:
        """A call of a form that was not met before, with all checks."""
        views = self._views(arrays)
        loaded = self._variant(views)._loaded
        # The first tensor of the process makes PyTorch's types known.
        key = key or self._calls.find(arrays, outs)[2]
        form = loaded.form(views, outs) if key else None
        results = loaded.run(views, outs)
        if form is not None:
            self._calls.learn(key, form)
        return results

    def bind(self, *arrays: Any, out: Any = None) -> "Callable[[], tuple[Any, ...]]":
        """The call on these arrays as an object (`BoundCall`) that takes no arguments: calling it only enqueues the launches.

        Arguments must lie on the device, and stay where they are. Results and temporaries belong to the object and are overwritten by every
        call; `out` as for a call. The object may be called while a CUDA graph is captured, which then must not outlive it.
        """
        views = self._views(arrays)
        return self._variant(views)._loaded.bind(views, None if out is None else _each(out))

    def form_for(self, *arrays: Any) -> "CallForm | None":
        """The form of calls on such arrays, everything worked out but the addresses; None on the simulator and for arrays of the host."""
        views = self._views(arrays)
        return self._variant(views)._loaded.form(views, None)

    def variant_for(self, *arrays: Any) -> "Program":
        """The program that a call on these arrays runs: this one where they are laid out as it declares and its indices are wide enough,
        else the variant for them.
        """
        return self._variant(self._views(arrays))

    def _views(self, arrays: "Sequence[Any]") -> "list[ArrayView]":
        from treadle.runtime.arguments import views_of

        return views_of(self.manifest, arrays)

    def _variant(self, views: "Sequence[ArrayView]") -> "Program":
        from treadle.runtime.arguments import layouts_of, resolve

        loaded = self._loaded
        layouts = layouts_of(loaded.plan, views, loaded.place)
        if layouts is not None and loaded.place[0] == "cpu" and self.manifest.is_by_hand:
            layouts = None  # the simulator copies
        found = self if layouts is None else self._specialised(layouts, wide=False)
        is_beyond = resolve(found._loaded.plan, views, loaded.place[0]).beyond is not None
        return self._specialised(layouts, wide=True) if is_beyond else found

    def _specialised(self, layouts: "Layouts | None", *, wide: bool) -> "Program":
        found = self._variants.get((layouts, wide))
        if found is None:
            found = self._variants[layouts, wide] = self._specialise(layouts, wide=wide)
        return found

    def reference(self, *arrays: Any) -> "Sequence[ReferenceResult]":
        """The results as the tensor-level program defines them, evaluated in float64 with NumPy, with bounds on the error they may have."""
        return self._reference(arrays)

    def save(self, folder: str | Path) -> Path:
        """Write the artifact's folder (docs/artifact.md). Raises TreadleError TR902, and TR931 for the simulator's programs."""
        from treadle import artifact_folder  # a start that only runs does without

        constants = {buffer.file: self.files[buffer.file] for buffer in self.manifest.buffers if buffer.file}
        return artifact_folder.write(folder, self.manifest, self.binaries, constants)
