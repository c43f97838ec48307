"""Calls functions of tvm-ffi modules through the C API of ``libtvm_ffi.so``, by ctypes.

For machines that have the library, or no more than a copy of it, but not the package that wraps it.
The structures are those of ``tvm/ffi/c_api.h`` of version 0.1.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any, Union

CUDA = 2
"""The device type of NVIDIA GPUs (``kDLCUDA``)."""

Argument = Union[None, bool, int, float, str, ctypes.c_void_p, "Module", "Function"]
"""What a function can be given; ``ctypes.c_void_p`` is a bare pointer."""

_VERSION = (0, 1)

_NONE, _INT, _BOOL, _FLOAT, _POINTER, _TEXT = 0, 1, 2, 3, 4, 8
_OBJECT, _FUNCTION, _MODULE = 64, 68, 73


class FfiError(RuntimeError):
    """An error that a function raised.

    Attributes
    ----------
    kind
        Its class on the other side, ``"ValueError"`` say.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class LibraryNotFoundError(OSError):
    """There is no ``libtvm_ffi.so``, or it cannot be loaded, or is of another version."""


class _Value(ctypes.Union):
    _fields_ = (
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("pointer", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
    )


class _Any(ctypes.Structure):  # TVMFFIAny
    _anonymous_ = ("value",)
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", _Value))


class _Bytes(ctypes.Structure):  # TVMFFIByteArray
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def text(self) -> str:
        return ctypes.string_at(self.data, self.size).decode("utf-8", "replace")


class _Header(ctypes.Structure):  # TVMFFIObject
    _fields_ = (
        ("references", ctypes.c_uint64),
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("deleter", ctypes.c_void_p),
    )


class _Error(ctypes.Structure):  # an error's TVMFFIObject, and the head of its TVMFFIErrorCell
    _fields_ = (("header", _Header), ("kind", _Bytes), ("message", _Bytes))


def find_library() -> str:
    """The path of ``libtvm_ffi.so`` in an installed apache-tvm-ffi, which is not imported.

    Raises
    ------
    LibraryNotFoundError
        If it is not installed.
    """
    spec = importlib.util.find_spec("tvm_ffi")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "lib", "libtvm_ffi.so")
        if os.path.exists(path):
            return path
    raise LibraryNotFoundError(
        "no libtvm_ffi.so: apache-tvm-ffi is not installed; install it, or give the library's path"
    )


class Library:
    """``libtvm_ffi.so``, with its symbols visible to libraries that are loaded later.

    Parameters
    ----------
    path
        Where it is; by default that of :func:`find_library`.

    Raises
    ------
    LibraryNotFoundError
        If it cannot be loaded, or has other structures than this module.
    """

    def __init__(self, path: str | None = None) -> None:
        path = find_library() if path is None else os.path.abspath(path)
        try:
            # Images do not name the library that they take functions from.
            self._library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise LibraryNotFoundError(f"{path} cannot be loaded: {error}") from error
        self.path = path
        library = self._library
        version = (ctypes.c_uint32 * 3)()
        library.TVMFFIGetVersion(version)
        if tuple(version[:2]) != _VERSION:
            raise LibraryNotFoundError(
                f"{path} is version {'.'.join(map(str, version))}, expected "
                f"{'.'.join(map(str, _VERSION))}"
            )
        handle = ctypes.c_void_p
        # Without argument types: checking them would double the cost of a call.
        self.call = library["TVMFFIFunctionCall"]
        library.TVMFFIFunctionGetGlobal.argtypes = (
            ctypes.POINTER(_Bytes),
            ctypes.POINTER(handle),
        )
        library.TVMFFIObjectDecRef.argtypes = (handle,)
        library.TVMFFIErrorMoveFromRaised.argtypes = (ctypes.POINTER(handle),)
        library.TVMFFIErrorMoveFromRaised.restype = None
        library.TVMFFIEnvSetStream.argtypes = (
            *(ctypes.c_int32, ctypes.c_int32, handle),
            ctypes.POINTER(handle),
        )
        self._load_module = self.global_function("ffi.ModuleLoadFromFile")
        self._get_function = self.global_function("ffi.ModuleGetFunction")

    def load_module(self, path: str | os.PathLike[str]) -> Module:
        """The module in a shared library.

        Raises
        ------
        FfiError
            If the file is missing or is no such library, or if what runs its contents is missing.
        """
        # A name without a slash would be looked up in the loader's folders.
        module = self._load_module(os.path.abspath(os.fspath(path)))
        assert isinstance(module, Module)
        return module

    def global_function(self, name: str) -> Function:
        """A function that is registered by name.

        Raises
        ------
        KeyError
            If there is none.
        """
        text = name.encode()
        key = _Bytes(ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p), len(text))
        handle = ctypes.c_void_p()
        self.check(self._library.TVMFFIFunctionGetGlobal(ctypes.byref(key), ctypes.byref(handle)))
        if not handle.value:
            raise KeyError(f"{self.path} has no function {name!r}")
        return Function(self, handle.value)

    def set_stream(self, device: int, stream: int, device_type: int = CUDA) -> int:
        """Let functions that this thread calls enqueue their work on a stream.

        Parameters
        ----------
        device
            Number of the device.
        stream
            The stream's handle, 0 for the default one.
        device_type
            Of DLPack.

        Returns
        -------
        int
            The handle of the stream before.
        """
        before = ctypes.c_void_p()
        self.check(
            self._library.TVMFFIEnvSetStream(
                device_type, device, ctypes.c_void_p(stream), ctypes.byref(before)
            )
        )
        return before.value or 0

    def function_of(self, module: Module, name: str) -> Function | None:
        """A function of a module or of what it imports, None if there is none of that name."""
        function = self._get_function(module, name, True)
        assert function is None or isinstance(function, Function)
        return function

    def check(self, status: int) -> None:
        """Raise the error that a call left behind, if its status is that of one.

        Raises
        ------
        FfiError
            With the error's kind and message.
        """
        if status == 0:
            return
        handle = ctypes.c_void_p()
        self._library.TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
        if not handle.value:
            raise FfiError("InternalError", f"a call failed with status {status} and no message")
        error = _Error.from_address(handle.value)
        kind, message = error.kind.text(), error.message.text()
        self.release(handle.value)
        raise FfiError(kind, message)

    def release(self, handle: int) -> None:
        """Give back a reference to an object."""
        self._library.TVMFFIObjectDecRef(handle)

    def result(self, value: Any) -> Any:
        """What a call returned, as Python has it; objects belong to what this returns."""
        kind = value.type_index
        if kind == _NONE:
            return None
        if kind == _INT:
            return value.integer
        if kind == _BOOL:
            return bool(value.integer)
        if kind == _FLOAT:
            return value.real
        if kind == _POINTER:
            return ctypes.c_void_p(value.pointer)
        if kind == _FUNCTION:
            return Function(self, value.pointer)
        if kind == _MODULE:
            return Module(self, value.pointer)
        if kind >= _OBJECT:
            self.release(value.pointer)
        raise FfiError("TypeError", f"a result of type {kind}, which this binding does not know")


class _Handle:
    """A reference to an object, given back when it is no longer used."""

    def __init__(self, library: Library, handle: int) -> None:
        self._library = library
        self.handle = handle

    def __del__(self) -> None:
        self._library.release(self.handle)


class Module(_Handle):
    """A module: a shared library and what is embedded in it."""

    def get_function(self, name: str) -> Function:
        """A function of this module or of what it imports.

        Raises
        ------
        AttributeError
            If there is none of that name.
        """
        function = self._library.function_of(self, name)
        if function is None:
            raise AttributeError(f"the module has no function {name!r}")
        return function


class Function(_Handle):
    """A function: call it, or prepare a call that is made many times."""

    def __call__(self, *arguments: Argument) -> Any:
        """Call it.

        Parameters
        ----------
        arguments
            ``int`` is passed as 64 bits, ``float`` as double precision, ``ctypes.c_void_p`` as a
            bare pointer.

        Returns
        -------
        object
            None, a number, a ``ctypes.c_void_p``, a :class:`Module` or a :class:`Function`.

        Raises
        ------
        FfiError
            If the function raises an error, or returns something else.
        TypeError
            If an argument is something else.
        """
        call = self.prepare(*arguments)
        call()
        return self._library.result(call.returned)

    def prepare(self, *arguments: Argument) -> PreparedCall:
        """A call with these arguments that costs little each time; see :class:`PreparedCall`."""
        return PreparedCall(self._library, self, arguments)


class PreparedCall:
    """A call whose arguments are packed once. For functions that return no object.

    Calling it is calling the function. One thread at a time may.

    Attributes
    ----------
    returned
        The raw result of the last call.
    """

    def __init__(
        self, library: Library, function: Function, arguments: tuple[Argument, ...]
    ) -> None:
        self._library = library
        self._arguments = (_Any * max(1, len(arguments)))()
        self._kept: list[Any] = [function, *arguments]
        for index, argument in enumerate(arguments):
            self.set(index, argument)
        self.returned = _Any()
        # Converted beforehand, which is most of what a call through ctypes costs.
        self._run: Callable[[], int] = functools.partial(
            library.call,
            ctypes.c_void_p(function.handle),
            ctypes.byref(self._arguments),
            ctypes.c_int32(len(arguments)),
            ctypes.byref(self.returned),
        )

    def __call__(self) -> None:
        """Call the function.

        Raises
        ------
        FfiError
            If it raises an error.
        """
        if self._run():
            self._library.check(1)

    def set(self, index: int, argument: Argument) -> None:
        """Change an argument for the calls to come.

        Raises
        ------
        TypeError
            If the argument is of a type that cannot be passed.
        OverflowError
            If it is an integer of more than 64 bits.
        """
        kept: Any = argument
        slot = self._arguments[index]
        if argument is None:
            slot.type_index, slot.integer = _NONE, 0
        elif isinstance(argument, bool):
            slot.type_index, slot.integer = _BOOL, int(argument)
        elif isinstance(argument, int):
            if not -(2**63) <= argument < 2**63:
                raise OverflowError(f"argument {index} is {argument}: expected 64 bits")
            slot.type_index, slot.integer = _INT, argument
        elif isinstance(argument, float):
            slot.type_index, slot.real = _FLOAT, argument
        elif isinstance(argument, ctypes.c_void_p):
            slot.type_index, slot.pointer = _POINTER, argument.value
        elif isinstance(argument, str):
            kept = argument.encode()
            slot.type_index, slot.text = _TEXT, kept
        elif isinstance(argument, (Module, Function)):
            kind = _MODULE if isinstance(argument, Module) else _FUNCTION
            slot.type_index, slot.pointer = kind, argument.handle
        else:
            raise TypeError(
                f"argument {index} is {type(argument).__name__}: expected None, bool, int, float, "
                "str, ctypes.c_void_p, Module or Function"
            )
        self._kept[index + 1] = kept
