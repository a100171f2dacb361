"""When a certificate ends: as much of DER as that takes."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

_VERSION, _UTC_TIME = 0xA0, 0x17


def expiry(pem: str) -> float:
    """Return notAfter of the first certificate in `pem`, in seconds since 1970.

    Raises:
        ValueError: there is none.
    """
    end = "-----END CERTIFICATE-----"
    first = pem[pem.find("-----BEGIN CERTIFICATE-----") :].partition(end)[0] + end
    (_, certificate), *_ = _values(ssl.PEM_cert_to_DER_cert(first))
    (_, signed), *_ = _values(certificate)
    fields = [value for tag, value in _values(signed) if tag != _VERSION]
    _serial, _algorithm, _issuer, validity, *_ = fields
    _, (tag, not_after) = _values(validity)
    text = not_after.decode().removesuffix("Z")
    if tag == _UTC_TIME:  # two digits of the year: 50 to 99 are of the last century
        text = f"{19 if text >= '5' else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of the values that `data` consists of."""
    while data:
        tag, size, start = data[0], data[1], 2
        if size & 0x80:  # then it is the number of bytes of the size
            start += size & 0x7F
            size = int.from_bytes(data[2:start], "big")
        yield tag, data[start : start + size]
        data = data[start + size :]
