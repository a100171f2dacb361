"""When a certificate ends, against a library that knows all of X.509."""

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509

from khot_server.metrics.certificate import expiry

ENDS = [
    datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC),
    datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),  # the last of two digits
    datetime(2050, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
]


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_the_end_of_a_certificate(ends):
    issued = trustme.CA().issue_cert("localhost", not_before=ENDS[0] - timedelta(9), not_after=ends)
    pem = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == ends
    assert expiry(pem.decode()) == ends.timestamp()


def test_of_a_chain_it_is_the_first_ones():
    ca = trustme.CA()
    issued = ca.issue_cert("localhost", not_after=ENDS[0])
    leaf, key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()
    chain = (key + leaf + ca.cert_pem.bytes()).decode()
    assert expiry("text before it\n" + chain) == ENDS[0].timestamp()


def test_a_text_without_a_certificate_is_refused():
    with pytest.raises(ValueError, match="PEM"):
        expiry("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
