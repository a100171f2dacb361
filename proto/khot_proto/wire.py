"""Large messages without copies of their tensors: `cut` to read one, `field` to write one.

protobuf copies a tensor's bytes when it parses a message and again at every access, and
twice more on the way out. Here the bytes of the message itself are walked, which for a
few large fields takes microseconds, whatever they hold:

- `cut` takes the bytes of every tensor out of a message. What is left, a skeleton with the
  index of each view where its bytes were, is parsed as usual.
- `field` puts a key before parts that are joined once, at the end, with all that is around
  them: the encoding of a message is that of its fields, one after another.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from khot_proto.v1.tensor_pb2 import Tensor

Buffer: TypeAlias = bytes | memoryview
# Fields by number on the way to tensors: another such table, or None for the bytes themselves.
Tree: TypeAlias = dict[int, "Tree | None"]

_LENGTH = 2  # the wire type of bytes, strings and messages
DATA = Tensor.DATA_FIELD_NUMBER


@cache
def _tree(descriptor: Descriptor) -> Tree:
    if descriptor.full_name == Tensor.DESCRIPTOR.full_name:
        return {DATA: None}
    within = {
        field.number: _tree(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None and field.message_type.file.package == "khot.v1"
    }
    return {number: tree for number, tree in within.items() if tree}


def cut(raw: bytes, descriptor: Descriptor) -> tuple[bytes, list[memoryview]]:
    """Return the message without the bytes of its tensors, and those bytes as views of it.

    In the skeleton the data of each tensor is the index of its view, little-endian.

    Args:
        raw: a serialized message.
        descriptor: of its type.

    Raises:
        DecodeError: these are not the bytes of a message.
    """
    views: list[memoryview] = []
    skeleton = _without(memoryview(raw), _tree(descriptor), views)
    return skeleton, views


def _without(raw: memoryview, tree: Tree, views: list[memoryview]) -> bytes:
    parts: list[Buffer] = []
    copied = 0
    for number, start, begin, end in _fields(raw):
        if number not in tree:
            continue
        within = tree[number]
        if within is None:
            body = len(views).to_bytes(4, "little")
            views.append(raw[begin:end])
        else:
            body = _without(raw[begin:end], within, views)
        parts += raw[copied:start], key(number, len(body)), body
        copied = end
    return b"".join((*parts, raw[copied:]))


def _fields(raw: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """(number, where it starts, where its bytes begin and end) of each field with a length."""
    at, size = 0, len(raw)
    while at < size:
        start = at
        tag, at = _varint(raw, at)
        match tag & 7:
            case 0:
                _, at = _varint(raw, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(raw, at)
                begin, at = at, at + length
                if at <= size:
                    yield tag >> 3, start, begin, at
            case other:  # groups, which proto3 does not have
                raise DecodeError(f"wire: type of a field must be 0, 1, 2 or 5; got {other}")
    if at > size:
        raise DecodeError(f"wire: message must hold its fields; got one {at - size} bytes short")


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("wire: varint must end within ten bytes; got one that does not")


def varint(value: int) -> bytes:
    """A whole number, at least 0, as it travels."""
    if value < 0x80:
        return value.to_bytes(1, "little")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def key(number: int, length: int) -> bytes:
    """What goes before the `length` bytes of field `number`."""
    return varint(number << 3 | _LENGTH) + varint(length)


def field(number: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """The parts of field `number`, of type bytes, string or a message, that holds these parts."""
    return [key(number, sum(map(len, parts))), *parts]
