"""IREE's CPU backend as an independent opinion on tensor-level modules: many functions compiled at once, called one by one."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

BF16 = np.dtype(ml_dtypes.bfloat16)


class IreeRefusal(Exception):
    """IREE does not compile a text."""


def _compiled(compiler: Any, text: str, flags: list[str]) -> bytes:
    try:
        return compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    except compiler.CompilerToolError as error:
        # Processors without arithmetic in f16 call functions of libm, which only the system's linker finds.
        if "undefined symbol" not in str(error):
            raise
        return compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=[*flags, "--iree-llvmcpu-link-embedded=false"])


class IreeFunctions:
    """The functions of one text, compiled for this machine. Skips the test where IREE is not installed; raises `IreeRefusal`."""

    def __init__(self, text: str) -> None:
        compiler = pytest.importorskip("iree.compiler", reason="IREE is not installed (extra `test`)")
        self._rt: Any = pytest.importorskip("iree.runtime", reason="IREE is not installed (extra `test`)")
        flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false", "--iree-input-demote-i64-to-i32=false"]
        try:
            binary = _compiled(compiler, text, flags)
        except compiler.CompilerToolError as error:
            raise IreeRefusal(str(error)) from error
        self._config = self._rt.Config("local-sync")
        context = self._rt.SystemContext(config=self._config)
        context.add_vm_module(self._rt.VmModule.copy_buffer(context.instance, binary))
        self._functions = context.modules.module

    def __call__(self, name: str, arguments: Sequence[np.ndarray | float]) -> np.ndarray:
        """The one result of a function, in its storage type. Python numbers are scalar arguments."""
        (result,) = self.all_results(name, arguments)
        return result

    def all_results(self, name: str, arguments: Sequence[np.ndarray | float]) -> list[np.ndarray]:
        """The same of a function with any number of results."""
        found = self._functions[name](*[self._device_array(a) if isinstance(a, np.ndarray) else a for a in arguments])
        return [self._host_array(one) for one in (found if isinstance(found, list | tuple) else [found])]

    def _host_array(self, result: Any) -> np.ndarray:
        rt, view = self._rt, result._buffer_view
        if view.element_type == rt.HalElementType.BFLOAT_16:
            return np.array(view.map().asarray(view.shape, np.dtype(np.uint16))).view(BF16)
        return np.array(result.to_host())

    def _device_array(self, array: np.ndarray) -> Any:
        rt = self._rt
        kinds = {
            "float32": rt.HalElementType.FLOAT_32,
            "float16": rt.HalElementType.FLOAT_16,
            "bfloat16": rt.HalElementType.BFLOAT_16,
            "float64": rt.HalElementType.FLOAT_64,
            "int8": rt.HalElementType.SINT_8,
            "int16": rt.HalElementType.SINT_16,
            "int32": rt.HalElementType.SINT_32,
            "int64": rt.HalElementType.SINT_64,
            "bool": rt.HalElementType.BOOL_8,
        }
        kind = kinds[array.dtype.name]
        dense = np.array(array, order="C")
        view = self._config.device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=self._config.device,
            buffer=dense.view(np.int16) if dense.dtype == BF16 else dense,
            element_type=kind,
        )
        return rt.DeviceArray(self._config.device, view, implicit_host_transfer=True)
